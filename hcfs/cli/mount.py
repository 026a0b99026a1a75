"""`hcfs mount`: a device or image becomes a file system at a directory."""

from __future__ import annotations

from collections.abc import Callable

import click

from hcfs.cli.arguments import json_option, mount_argument
from hcfs.cli.output import print_json, warn
from hcfs.errors import UsageError
from hcfs.mountpoint.client import read_status
from hcfs.options.mount_options import MountOptions
from hcfs.options.table import rows
from hcfs.store.find import resolve_source

_REPORTED = (
    *("device", "directory", "uuid", "label", "pid", "version", "state", "state_reason", "read_only", "io"),
    *("data_plane", "data_plane_reason", "capacity_bytes", "used_bytes", "objects"),
)
"""Fields of the status that `--json` shows of a mount that was just made."""


_HELP = """Mount the store on SOURCE, a device, an image, UUID=... or LABEL=..., at DIR.

Comes back when the mount serves, and leaves a daemon; with -f it stays. A dead mount at DIR is cleared first.
--json prints who serves it, and its state.

\b
Options of hcfs for -o, beside the usual words of mount(8):
"""


def _listed() -> str:
    """A line an option."""
    lines = []
    for row in rows(MountOptions).values():
        value = row.value.metavar if row.default == "none" else row.default
        also = f"; also {row.word}" if row.flag else ""
        lines.append(f"  {f'{row.name}={value}':<21} {row.help}{also}")
    return "\n".join(lines)


def _flags(function: Callable[..., None]) -> Callable[..., None]:
    """The options of the mount that the command has as its own, too."""
    for row in reversed(list(rows(MountOptions).values())):
        if row.flag:
            default = "" if row.default == "none" else f"  [default: {row.default}]"
            shown = f"{row.help[0].upper()}{row.help[1:]}.{default}"
            function = click.option(row.word, row.name, metavar=row.value.metavar, help=shown)(function)
    return function


@click.command(short_help="Mount a store at a directory.", help=_HELP + _listed())
@click.argument("source")
@mount_argument
@click.option("-f", "--foreground", is_flag=True, help="Stay in the foreground until unmounted.")
@click.option("-o", "words", multiple=True, metavar="OPTIONS", help="Mount options, separated by commas.")
@_flags
@click.option("--config", type=click.Path(path_type=str), metavar="FILE", help="Options from a TOML file; -o wins.")
@json_option
def command(
    source: str,
    directory: str,
    foreground: bool,
    words: tuple[str, ...],
    config: str | None,
    as_json: bool,
    **flags: str | None,
) -> None:
    from hcfs.daemon.daemon import mount  # brings pyfuse3 and trio along

    if as_json and foreground:
        raise UsageError("--json tells of a mount that serves, for which -f doesn't return; leave one of them out")
    options = MountOptions.parse(",".join(words), config=config, **flags)
    mount(resolve_source(source), directory, options, foreground)
    if foreground:
        return
    status = read_status(directory)
    for name, origin in status["origins"].items():
        if origin["not_allowed"] is not None:
            warn(f"namespace {name} is refused: {origin['not_allowed']}.")
    if as_json:
        print_json({name: status[name] for name in _REPORTED})
