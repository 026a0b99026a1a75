"""The command group: which module holds which command, and the bare form that mount(8) uses."""

from __future__ import annotations

import importlib
import os

import click

from hcfs import __version__

# A command's module is imported when that command runs: `hcfs status` shouldn't pay for pyfuse3 and trio.
_MODULES = {
    "mkfs": "hcfs.cli.mkfs",
    "mount": "hcfs.cli.mount",
    "umount": "hcfs.cli.umount",
    "info": "hcfs.cli.info",
    "status": "hcfs.cli.status",
    "top": "hcfs.cli.top",
    "ns": "hcfs.cli.ns",
    "evict": "hcfs.cli.evict",
    "sync": "hcfs.cli.sync",
    "fsck": "hcfs.cli.fsck",
    "scrub": "hcfs.cli.scrub",
    "inspect": "hcfs.cli.inspect",
    "keys": "hcfs.cli.keys",
    "lmcache-config": "hcfs.cli.lmcache_config",
    "weights": "hcfs.cli.weights",
    "doctor": "hcfs.cli.doctor",
}

_WORK = frozenset(
    ("mkfs", "mount", "umount", "ns create", "ns set", "ns rm", "evict", "sync", "fsck", "scrub", "doctor")
)
"""Commands that change something, or whose exit code is a verdict: done to their end also when nobody reads them."""


def only_reports() -> bool:
    """Whether what the command that runs now prints is all that it is for."""
    context = click.get_current_context(silent=True)
    return context is None or context.command_path.partition(" ")[2] not in _WORK


class Commands(click.Group):
    """Commands by name; `SOURCE DIR ...` without a name mounts, as mount(8) calls a `fuse.hcfs` file system."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order in which a user meets them."""
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, its module imported now; None when there is none."""
        if cmd_name not in _MODULES:
            return None
        command = importlib.import_module(_MODULES[cmd_name]).command
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the missing `mount` before a source."""
        if len(args) > 1 and args[0] not in _MODULES and _is_source(args[0]):
            args = ["mount", *args]
        return super().parse_args(ctx, args)


def _is_source(word: str) -> bool:
    return not word.startswith("-") and ("/" in word or "=" in word or os.path.exists(word))


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="hcfs", message="%(prog)s %(version)s")
def group() -> None:
    """A cache filesystem for LLM serving on raw NVMe devices.

    Called as `hcfs SOURCE DIR [-o OPTIONS]`, without a command, it mounts.
    """
