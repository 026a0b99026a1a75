"""Parameter types and options that several commands share."""

from __future__ import annotations

import re
from typing import Any

import click

_SIZE = re.compile(r"([0-9]+)([KMGT]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class SizeType(click.ParamType[int]):
    """A number of bytes: 4096, 64K, 14M, 1G, 2T (powers of 1024)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes; click.BadParameter for anything that isn't a size."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value.upper())
        if match is None:
            self.fail(f"'{value}' is not a size; write 4096, 64K, 14M, 1G or 2T.", param, ctx)
        return int(match[1]) * _UNITS[match[2]]


SIZE = SizeType()

target_argument = click.argument("target", type=click.Path(path_type=str))
mount_argument = click.argument("directory", metavar="DIR", type=click.Path(path_type=str))
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
namespace_argument = click.argument("namespace")
