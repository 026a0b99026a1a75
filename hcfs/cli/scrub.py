"""`hcfs scrub`: every byte of a mounted store read again, and what is bad set aside."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import click

from hcfs.cli.arguments import SIZE, json_option_lines, mount_argument
from hcfs.cli.output import human_size, progress, say, warn
from hcfs.errors import HcfsError, Unfinished
from hcfs.mountpoint.client import administer, read_status

CLEAN, DAMAGED = 0, 1
POLL = 0.5
"""Seconds between two looks at how far it is"""

Status = dict[str, Any]


@click.command(short_help="Read and verify every file of a mount.")
@mount_argument
@click.option("--rate", type=SIZE, help="Bytes a second to read at most; 256M if none is given.")
@click.option("--restart", is_flag=True, help="Begin at the start, though a pass was stopped before its end.")
@json_option_lines
def command(directory: str, rate: int | None, restart: bool, as_json: bool) -> int:
    """Read every file on the file system mounted at DIR, verify it, and quarantine what is damaged. The mount is in use
    meanwhile.

    A pass that was stopped, by Ctrl-C or with the mount, is taken up by the next one. Exit code: 0 the whole pass found
    nothing, 1 it found damage, 3 it wasn't seen to its end, since somebody else or the mount's end stopped it, 130
    Ctrl-C stopped it.
    """
    words: dict[str, Any] = {} if rate is None else {"rate": rate}
    try:
        status = administer(directory, "scrub", action="start", restart=restart, **words)
        status = _watch(directory, status, as_json)
    except KeyboardInterrupt:
        _stop(directory, as_json)
        raise
    if not as_json:
        _report(status)
    if status["state"] != "finished":
        raise Unfinished(
            f"the scrub of {directory} was stopped before its end, so nothing is known of the rest; "
            f"'hcfs scrub {directory}' goes on with it"
        )
    return DAMAGED if status["damaged"] else CLEAN


def _stop(directory: str, as_json: bool) -> None:
    try:
        status = administer(directory, "scrub", action="stop")
        while status["state"] == "running":
            time.sleep(POLL / 10)
            status = read_status(directory)["scrub"]
    except HcfsError as error:
        warn(f"whether the scrub is stopped isn't known: {error}")
        return
    if as_json:
        _print_json(status)
    say(f"the scrub is stopped; 'hcfs scrub {directory}' goes on with it", err=True)


def _watch(directory: str, status: Status, as_json: bool) -> Status:
    """The status in which the pass ended; `damaged` counts what former passes of this watch found, too. Unfinished when
    the mount no longer tells."""
    total = _look(directory, status, as_json)["used_bytes"]
    began_at, damaged_before = status["began_at"], 0
    with progress("scrub") as advance:
        show: Callable[[Status], None] = (
            _print_json if as_json else (lambda now: advance(now["checked_bytes"], max(total, now["checked_bytes"])))
        )
        while True:
            show(status)
            if status["state"] != "running":
                return {**status, "damaged": damaged_before + status["damaged"]}
            time.sleep(POLL)
            now = _look(directory, status, as_json)["scrub"]
            if (now["began_at"] or 0) < began_at:
                # The mount is another one by now, which knows of an earlier pass alone: this one is lost.
                now = {**status, "state": "stopped"}
            elif now["began_at"] > began_at:
                began_at, damaged_before = now["began_at"], damaged_before + status["damaged"]
            status = now


def _look(directory: str, status: Status, as_json: bool) -> Status:
    """The mount's status; status: of the scrub, as it was last."""
    try:
        return read_status(directory)
    except HcfsError as error:
        if as_json:
            _print_json({**status, "state": "lost"})
        raise Unfinished(f"the scrub couldn't be watched to its end: {error}") from error


def _print_json(status: Status) -> None:
    click.echo(json.dumps(status))


def _report(status: Status) -> None:
    for bad in status["bad"]:
        say(f"damaged: {bad['path']}: {bad['reason']}")
    verdict = f"{status['damaged']} damaged, quarantined" if status["damaged"] else "no damage"
    say(f"{status['state']}: {status['objects']} files, {human_size(status['checked_bytes'])} verified; {verdict}")
