"""Parameter types and options that several commands share."""

from __future__ import annotations

from typing import Any

import click

from hcfs.options.values import NoSuchValue, Size


class SizeType(click.ParamType[int]):
    """A number of bytes: 4096, 64K, 14M, 1G, 2T (powers of 1024)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes; click.BadParameter for anything that isn't a size."""
        if isinstance(value, int):
            return value
        try:
            return Size().parse(str(value))
        except NoSuchValue as error:
            self.fail(f"{value}: {error}", param, ctx)


SIZE = SizeType()

target_argument = click.argument("target", type=click.Path(path_type=str))
# Not click.Path, which asks the filesystem about it: the daemon of a mount may hang, and then so would every command.
mount_argument = click.argument("directory", metavar="DIR", type=str)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
namespace_argument = click.argument("namespace")
json_option_lines = click.option("--json", "as_json", is_flag=True, help="Print a JSON document a line as it goes on.")
