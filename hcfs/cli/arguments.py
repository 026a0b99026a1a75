"""Parameter types and options that several commands share."""

from __future__ import annotations

from typing import Any

import click

from hcfs.errors import UsageError


class SizeType(click.ParamType[int]):
    """A number of bytes: 4096, 64K, 14M, 1G, 2T (powers of 1024)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes; click.BadParameter for anything that isn't a size."""
        if isinstance(value, int):
            return value
        from hcfs.daemon.options import size  # the same sizes as in mount options; only who is given one pays for it

        try:
            return size(param.opts[-1] if param else "size", value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


SIZE = SizeType()


class QuotaType(SizeType):
    """A size, or `none` for no bound."""

    name = "size|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Bytes, or the text `none`; click.BadParameter for anything else."""
        return value if value == "none" else super().convert(value, param, ctx)


QUOTA = QuotaType()

target_argument = click.argument("target", type=click.Path(path_type=str))
# Not click.Path, which asks the filesystem about it: the daemon of a mount may hang, and then so would every command.
mount_argument = click.argument("directory", metavar="DIR", type=str)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
namespace_argument = click.argument("namespace")
json_option_lines = click.option("--json", "as_json", is_flag=True, help="Print a JSON document a line as it goes on.")
