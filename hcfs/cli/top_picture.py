"""The picture that `hcfs top` draws of one interval on a terminal, whatever its width."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hcfs.cli.output import byte_rate, human_size, rate
from hcfs.printable import printable

Document = Mapping[str, Any]

_HEADLINES = ("lookups", "lookup_misses", "opens", "commits", "evictions", "abandoned", "ingests", "uploads")
_PARTS = (("used", "blue"), ("dirty", "magenta"), ("staged", "cyan"), ("pending", "yellow"), ("quarantined", "red"))
_ERRORS_SHOWN, _TRANSFERS_SHOWN = 3, 6
_HEADS = ("used", "quota", "kind", "objects", "evictions", "staged")
_NAME = 12
"""Columns that a namespace's name keeps."""
_BAR, _FULL = 24, 40
"""Columns of a transfer's bar; where the terminal has fewer than the second number, it is left out."""


def picture(document: Document) -> RenderableType:
    """What is most urgent comes first, since a low terminal shows the top only."""
    parts: list[RenderableType] = [_title(document), _state(document)]
    errors = [each for each in document["errors"] if each["error"] != document.get("state_reason")]
    parts += [_line(f"{each['where']}: {each['error']}", "red") for each in errors[:_ERRORS_SHOWN]]
    parts += [Text(), *_activity(document), Text(), _SpaceBar(document), _legend(document)]
    for name, what in (("fetches", "fetches from origins"), ("uploads", "uploads to origins")):
        if document[name]:
            parts += [Text(), _transfers(what, document[name])]
    parts += [Text(), *_daemon(document)]
    if document["namespaces"]:
        parts += [Text(), _Namespaces(document["namespaces"])]
    return Group(*parts)


def _line(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _title(document: Document) -> Text:
    label = f" ({document['label']})" if document.get("label") else ""
    seconds = document["interval_s"]
    since = "first look" if seconds is None else f"last {seconds:.1f} s"
    return _line(f"hcfs top, {since}  {document.get('directory')}  {document.get('device')}{label}", "bold")


def _state(document: Document) -> Text:
    """On as many lines as the reason takes: it is what a reader must not miss."""
    state, reason = str(document.get("state")), document.get("state_reason")
    if state == "ok":
        return _line("state ok", "green")
    return Text(printable(f"state {state.upper()}: {reason or 'no reason is known'}"), style="bold white on red")


def _activity(document: Document) -> Iterator[RenderableType]:
    rates = document["rates"]
    figures = [f"{word} {byte_rate(rates.get(f'{word}_bytes'))}" for word in ("read", "written")]
    figures += [f"{name.replace('_', ' ')} {rate(rates[name])}" for name in _HEADLINES if name in rates]
    yield Columns([_line(figure) for figure in figures], padding=(0, 3))
    requests = {name: value for name, value in document["requests"].items() if value}
    busiest = sorted(requests, key=lambda name: -requests[name])
    yield _line("requests  " + ("  ".join(f"{name} {rate(requests[name])}" for name in busiest) or "none"), "dim")


class _SpaceBar:
    """One line, as wide as the terminal, of what the capacity is taken by."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = options.max_width
        capacity = max(1, self._document.get("capacity_bytes", 0))
        sizes = {name: self._document.get(f"{name}_bytes", 0) for name, _ in _PARTS}
        sizes["used"] -= sizes["dirty"]  # a part of it
        bar = Text(no_wrap=True)
        for name, colour in _PARTS:
            columns = round(sizes[name] / capacity * width) or (1 if sizes[name] else 0)
            bar.append("█" * min(columns, width - len(bar)), style=colour)
        bar.append("░" * (width - len(bar)), style="dim")
        yield bar


def _legend(document: Document) -> RenderableType:
    colours = dict(_PARTS)
    names = ("used", "evictable", "dirty", "staged", "pending", "quarantined", "free", "capacity")
    shown = [name for name in names if f"{name}_bytes" in document]
    return Columns(
        [_line(f"{name} {human_size(document[f'{name}_bytes'])}", colours.get(name, "")) for name in shown],
        padding=(0, 3),
    )


def _transfers(what: str, under_way: Sequence[Document]) -> RenderableType:
    rows = [
        (f"{each['namespace']}/{each['key']}", _TransferBar(each["bytes"], each["size"]), byte_rate(each["bytes_rate"]))
        for each in under_way[:_TRANSFERS_SHOWN]
    ]
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", justify="right", min_width=max(len(row[-1]) for row in rows))
    for name, bar, how_fast in rows:
        grid.add_row(_line(name), bar, how_fast)
    more = len(under_way) - _TRANSFERS_SHOWN
    return Group(_line(what, "dim"), grid, *([_line(f"and {more} more", "dim")] if more > 0 else []))


class _TransferBar:
    """A bar where there is room for one, else the percentage."""

    def __init__(self, done: int, size: int) -> None:
        self._done, self._size = done, size

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        if console.width >= _BAR + _FULL:
            yield ProgressBar(total=max(1, self._size), completed=self._done, width=_BAR)
        else:
            yield _line(f"{100 * self._done // max(1, self._size)}%")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        width = _BAR if console.width >= _BAR + _FULL else 4
        return Measurement(width, width)


class _Namespaces:
    """A row each, the fullest first; where the terminal is narrow, columns are left out, and then names cut."""

    def __init__(self, namespaces: Document) -> None:
        ordered = sorted(namespaces.items(), key=lambda item: -item[1].get("used_bytes", 0))
        self._rows = [(name, *_cells(usage)) for name, usage in ordered]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", expand=True)
        grid.add_column("namespace", no_wrap=True, overflow="ellipsis", ratio=1)
        left, shown = options.max_width - _NAME, [0]
        for number, head in enumerate(_HEADS, 1):
            width = max(len(head), *(len(row[number]) for row in self._rows))
            left -= width + 2
            if left < 0:
                break
            grid.add_column(head, no_wrap=True, justify="left" if head == "kind" else "right", min_width=width)
            shown.append(number)
        for row in self._rows:
            grid.add_row(*(_line(row[number]) for number in shown))
        yield grid


def _cells(usage: Document) -> tuple[str, ...]:
    used, quota = usage.get("used_bytes", 0), usage.get("quota_bytes")
    return (
        human_size(used),
        "-" if quota is None else f"{100 * used // max(1, quota)}% of {human_size(quota)}",
        _kind(usage),
        str(usage.get("objects", "-")),
        rate(usage["evictions_rate"]),
        human_size(usage.get("staged_bytes", 0)),
    )


def _kind(usage: Document) -> str:
    words = ["local"] if usage.get("local_only") else [str(usage.get("write_policy") or "")]
    if usage.get("unsynced_objects"):
        words.append(f"{usage['unsynced_objects']} unsynced")
    if usage.get("failed_objects"):
        words.append(f"{usage['failed_objects']} failed")
    return ", ".join(filter(None, words))


def _daemon(document: Document) -> Iterator[RenderableType]:
    memory = document.get("memory", {})
    sizes = [f"{name} {human_size(value)}" for name, value in memory_sizes(memory)]
    yield _line("memory  " + "  ".join(sizes), "dim")
    reason = document.get("data_plane_reason")
    plane = f"served by {document.get('data_plane')}" + (f" ({reason})" if reason else "")
    yield _line(f"{plane}, {document.get('io')} I/O, {document.get('open_handles', '-')} open handles", "dim")
    scrub = document["scrub"]
    if scrub.get("state") == "running":
        yield _line(f"scrub  {human_size(scrub['checked_bytes'])} verified, {scrub['damaged']} damaged", "dim")
    for each in document["commands"]:
        if each.get("total_bytes"):
            yield _line(f"{each['phase']}  {100 * each['done_bytes'] // each['total_bytes']}%", "dim")
    yield _line("q or Ctrl-C ends", "dim")


def memory_sizes(memory: Document) -> Iterator[tuple[str, int]]:
    """Names and bytes of the fields of a status's `memory` that are bytes."""
    for name, value in memory.items():
        if isinstance(value, int) and name in ("budget", "in_use", "idle", "peak", "write_buffers"):
            yield name.replace("_", " "), value
