"""`hcfs umount`: the end of a mount and of its daemon."""

from __future__ import annotations

import click

from hcfs.cli.arguments import mount_argument


@click.command(short_help="Unmount, and wait until the device is free.")
@mount_argument
@click.option("--lazy", is_flag=True, help="Detach now even if files are open; the daemon ends with the last user.")
def command(directory: str, lazy: bool) -> None:
    """Unmount the file system at DIR; comes back when its daemon has ended and the device is free."""
    from hcfs.daemon.daemon import unmount

    unmount(directory, lazy)
