"""Printing: one JSON document, or text that is aligned for people and never cut to a terminal's width."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click


def print_json(document: Any) -> None:
    """The document, indented, keys in the order given."""
    click.echo(json.dumps(document, indent=2, default=str))


def print_fields(fields: Mapping[str, object]) -> None:
    """A line a field: name, value."""
    width = max(map(len, fields), default=0) + 2
    for name, value in fields.items():
        click.echo(f"{name + ':':<{width}}{value}")


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns under their heads, numbers to the right."""
    rows = list(rows)
    lines = [list(heads), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    numeric = [bool(rows) and all(isinstance(row[column], int) for row in rows) for column in range(len(heads))]
    for line in lines:
        cells = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, numeric, strict=True)
        )
        click.echo("  ".join(cells).rstrip())


def human_size(count: int) -> str:
    """`1.5 GiB`; exact bytes below 1 KiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def bytes_and_size(count: int) -> str:
    """`1610612736 (1.5 GiB)`."""
    return f"{count} ({human_size(count)})"
