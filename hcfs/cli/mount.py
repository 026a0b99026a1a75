"""`hcfs mount`: a device or image becomes a file system at a directory."""

from __future__ import annotations

import click

from hcfs.cli.arguments import SIZE, json_option, mount_argument
from hcfs.cli.output import print_json, warn
from hcfs.errors import UsageError
from hcfs.mountpoint.client import read_status
from hcfs.store.find import resolve_source

_REPORTED = (
    *("device", "directory", "uuid", "label", "pid", "version", "state", "state_reason", "read_only", "io"),
    *("data_plane", "data_plane_reason", "capacity_bytes", "used_bytes", "objects"),
)
"""Fields of the status that `--json` shows of a mount that was just made."""


@click.command(short_help="Mount a store at a directory.")
@click.argument("source")
@mount_argument
@click.option("-f", "--foreground", is_flag=True, help="Stay in the foreground until unmounted.")
@click.option("-o", "words", multiple=True, metavar="OPTIONS", help="Mount options, separated by commas.")
@click.option("--memory", type=SIZE, help="Bytes for I/O buffers.  [default: 256M]")
@click.option("--log", type=click.Path(path_type=str), metavar="FILE", help="Where the daemon writes its log.")
@click.option("--config", type=click.Path(path_type=str), metavar="FILE", help="Options from a TOML file; -o wins.")
@json_option
def command(
    source: str,
    directory: str,
    foreground: bool,
    words: tuple[str, ...],
    memory: int | None,
    log: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Mount the store on SOURCE, a device, an image, UUID=... or LABEL=..., at DIR.

    Comes back when the mount serves, and leaves a daemon; with -f it stays. A dead mount at DIR is cleared first.
    --json prints who serves it, and its state.

    \b
    Options of hcfs for -o, beside the usual words of mount(8):
      commit_interval=1s    longest time for which something visible isn't durable
      staging_ttl=10m       how long a closed *.tmp waits for its rename
      lookup_grace=30s      how long a lookup protects from eviction
      high_watermark=95%    use of the space above which the oldest objects go ...
      low_watermark=90%     ... down to this
      discard=off           batch: tell the device of freed blocks
      data_plane=auto       on, off: threads or pyfuse3 serve the hot requests
      upload_attempts=12    failures in a row after which an upload is given up
      allow_origin=URL      a prefix of the origins that namespaces may have; none without
      memory=256M, log=FILE as --memory and --log
    """
    from hcfs.daemon.daemon import mount  # brings pyfuse3 and trio along
    from hcfs.daemon.options import MountOptions

    if as_json and foreground:
        raise UsageError("--json tells of a mount that serves, for which -f doesn't return; leave one of them out")
    options = MountOptions.parse(",".join(words), config=config, memory=memory, log=log)
    mount(resolve_source(source), directory, options, foreground)
    if foreground:
        return
    status = read_status(directory)
    for name, origin in status["origins"].items():
        if origin["not_allowed"] is not None:
            warn(f"namespace {name} is refused: {origin['not_allowed']}.")
    if as_json:
        print_json({name: status[name] for name in _REPORTED})
