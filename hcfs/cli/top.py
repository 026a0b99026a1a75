"""`hcfs top`: a mount watched, look by look."""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from hcfs.cli.arguments import mount_argument
from hcfs.cli.keyboard import Keyboard, keyboard
from hcfs.cli.output import byte_rate, human_size, rate, say
from hcfs.cli.top_interval import interval
from hcfs.errors import HcfsError, UsageError
from hcfs.mountpoint.client import mount_at, read_status

Document = dict[str, Any]
Show = Callable[[Document], None]


@click.command(short_help="Watch a mount: rates, space, fetches, errors.")
@mount_argument
@click.option(
    "--interval",
    "seconds",
    type=click.FloatRange(min=0.1, max=86400),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--iterations", type=click.IntRange(min=1), metavar="N", help="End after so many intervals.")
@click.option("--once", is_flag=True, help="End after one interval, as --iterations 1.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document a line for each interval.")
def command(directory: str, seconds: float, iterations: int | None, once: bool, as_json: bool) -> None:
    """Watch the file system mounted at DIR: what it does since the last look, in rates a second, what fills it, what is
    on its way from origins, and what is wrong.

    On a terminal one picture that is drawn anew, until q or Ctrl-C; elsewhere a line for each interval. Exit code 1
    when the mount ends meanwhile.
    """
    if not math.isfinite(seconds):
        raise UsageError("--interval takes a number of seconds, such as 1 or 0.5")
    if once:
        iterations = 1
    looks = None if iterations is None else iterations + 1
    live = not as_json and _can_draw()
    with keyboard() if live else _no_keyboard() as keys, _output(live, as_json) as show:
        try:
            _watch(directory, seconds, looks, show, keys, from_the_first=live)
        except KeyboardInterrupt:
            return


def _watch(
    directory: str, seconds: float, looks: int | None, show: Show, keys: Keyboard, *, from_the_first: bool
) -> None:
    """Look again and again, and show it. from_the_first: the first look as well, which has no rates yet."""
    before, looked_at = None, 0.0
    due = time.monotonic()
    for number in itertools.count(1):
        status, now = _look(directory, known=before is not None), time.monotonic()
        if before is not None or from_the_first:
            show(interval(before, status, now - looked_at))
        before, looked_at = status, now
        if number == looks:
            return
        # A look that was late isn't made up for.
        due = max(due + seconds, now)
        if keys.wait(due - now, b"q"):
            return


def _look(directory: str, *, known: bool) -> Document:
    try:
        return read_status(directory)
    except HcfsError as error:
        if known and mount_at(directory) is None:
            raise HcfsError(f"the mount at {directory} has ended while it was watched; mount it again") from error
        raise


def _can_draw() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


@contextmanager
def _no_keyboard() -> Iterator[Keyboard]:
    yield Keyboard(None)


@contextmanager
def _output(live: bool, as_json: bool) -> Iterator[Show]:
    if not live:
        yield _print_json if as_json else _print_line
        return
    from rich.console import Console
    from rich.live import Live

    from hcfs.cli.top_picture import picture

    with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as screen:
        yield lambda document: screen.update(picture(document), refresh=True)


def _print_json(document: Document) -> None:
    click.echo(json.dumps({"at": round(time.time(), 3), **document}))
    sys.stdout.flush()


def _print_line(document: Document) -> None:
    """What a log of a mount wants: the time, the state, the main figures; the reason where the state isn't ok."""
    rates, state = document["rates"], document.get("state")
    reason = f" ({document.get('state_reason')})" if state != "ok" else ""
    words = [time.strftime("%H:%M:%S"), f"{state}{reason}"]
    words += [f"{word} {byte_rate(rates.get(f'{word}_bytes'))}" for word in ("read", "written")]
    words += [
        f"{name.replace('_', ' ')} {rate(rates[name])}"
        for name in ("lookups", "lookup_misses", "opens", "commits", "evictions")
        if name in rates
    ]
    words += [f"{name} {human_size(document.get(f'{name}_bytes', 0))}" for name in ("used", "staged", "free")]
    words += [
        f"{name} {human_size(document[f'{name}_bytes'])}"
        for name in ("dirty", "pending", "quarantined")
        if document.get(f"{name}_bytes")
    ]
    words += [f"{name} {len(document[name])}" for name in ("fetches", "uploads") if document[name]]
    given_up = sum(usage.get("failed_objects", 0) for usage in document["namespaces"].values())
    if given_up:
        words.append(f"uploads given up {given_up}")
    say("  ".join(words))
    sys.stdout.flush()
