"""Printing: one JSON document, or text that is aligned for people and never cut to a terminal's width."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import click

from hcfs.printable import printable


def print_json(document: Any) -> None:
    """The document, indented, keys in the order given."""
    click.echo(json.dumps(document, indent=2, default=str))


def print_json_list(entries: Iterable[Any]) -> None:
    """One JSON array, an entry a line, printed as the entries come."""
    separator = "["
    for entry in entries:
        click.echo(f"{separator}\n{json.dumps(entry, default=str)}", nl=False)
        separator = ","
    click.echo("[]" if separator == "[" else "\n]")


def print_fields(fields: Mapping[str, Any]) -> None:
    """A line a field; byte counts in larger units too, what is empty as a dash, mappings field by field."""
    lines = [(printable(name), text) for name, text in _lines(fields)]
    width = max((len(name) for name, _ in lines), default=0) + 2
    for name, text in lines:
        say(f"{name + ':':<{width}}{text}")


def _lines(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        short = name.removesuffix("_bytes")
        shown = prefix + (name if short != name and short in fields else short).replace("_", " ")
        if isinstance(value, Mapping):
            yield from _lines(value, f"{shown} ") if value else [(shown, "-")]
        elif isinstance(value, bool):
            yield shown, "yes" if value else "no"
        elif isinstance(value, int) and name.endswith("_bytes"):
            yield shown, f"{value} ({human_size(value)})" if value >= 1024 else str(value)
        elif isinstance(value, (list, tuple)):
            yield shown, ", ".join(map(str, value)) or "-"
        else:
            yield shown, "-" if value is None or value == "" else str(value)


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns under their heads, numbers to the right."""
    rows = list(rows)
    lines = [list(heads), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    numeric = [bool(rows) and all(isinstance(row[column], int) for row in rows) for column in range(len(heads))]
    for line in lines:
        cells = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, numeric, strict=True)
        )
        say("  ".join(cells).rstrip())


def shown_quota(usage: Mapping[str, Any]) -> str:
    """The quota of a namespace, from its part of the status."""
    return "none" if usage["quota_bytes"] is None else human_size(usage["quota_bytes"])


def human_size(count: int) -> str:
    """`1.5 GiB`; exact bytes below 1 KiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def rate(value: float | None) -> str:
    """`12.5/s`; a dash where nothing is known yet."""
    return "-" if value is None else f"{value:.0f}/s" if value >= 10 or not value else f"{value:.1f}/s"


def byte_rate(value: float | None) -> str:
    """`1.5 MiB/s`; a dash where nothing is known yet."""
    return "-" if value is None else f"{human_size(int(value))}/s"


def say(line: str, *, err: bool = False) -> None:
    """One line, whatever is in it, on stdout or stderr."""
    click.echo(printable(line), err=err)


def warn(sentence: str) -> None:
    """A sentence on stderr about what the user may want to know, while the command goes on."""
    say(f"hcfs: {sentence}", err=True)


class Advance(Protocol):
    """How far something is."""

    def __call__(self, done: int, total: int, what: str | None = None) -> None:
        """Bytes done and bytes to do, in all; and what is done, where that has changed."""


def _unseen(done: int, total: int, what: str | None = None) -> None:
    pass


@contextmanager
def progress(what: str) -> Iterator[Advance]:
    """A bar on stderr, where that is a terminal."""
    if not sys.stderr.isatty():
        yield _unseen
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(what), total=None)

        def advance(done: int, total: int, what: str | None = None) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield advance
