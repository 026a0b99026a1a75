"""`hcfs scrub`: every byte of a mounted store read again, and what is bad set aside."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import click

from hcfs.cli.arguments import SIZE, json_option_lines, mount_argument
from hcfs.cli.output import human_size, progress, say
from hcfs.mount.client import administer, read_status

CLEAN, DAMAGED = 0, 1
POLL = 0.5
"""seconds between two looks at how far it is"""

Status = dict[str, Any]


@click.command(short_help="Read and verify every file of a mount.")
@mount_argument
@click.option("--rate", type=SIZE, help="Bytes a second to read at most; 256M if none is given.")
@click.option("--restart", is_flag=True, help="Begin at the start, though a pass was stopped before its end.")
@json_option_lines
def command(directory: str, rate: int | None, restart: bool, as_json: bool) -> int:
    """Read every file on the file system mounted at DIR, verify it, and quarantine what is damaged. The mount is in use
    meanwhile.

    A pass that was stopped, by Ctrl-C or with the mount, is taken up by the next one. Exit code: 0 the pass found
    nothing, 1 it found damage, 130 Ctrl-C stopped it.
    """
    words: dict[str, Any] = {} if rate is None else {"rate": rate}
    try:
        status = administer(directory, "scrub", action="start", restart=restart, **words)
        status = _watch(directory, status, as_json)
    except KeyboardInterrupt:
        administer(directory, "scrub", action="stop")
        say(f"the scrub is stopped; 'hcfs scrub {directory}' goes on with it", err=True)
        raise
    if not as_json:
        _report(status)
    return DAMAGED if status["damaged"] else CLEAN


def _watch(directory: str, status: Status, as_json: bool) -> Status:
    """The status in which the pass ended."""
    total = read_status(directory)["used_bytes"]
    with progress("scrub") as advance:
        show: Callable[[Status], None] = (
            (lambda now: click.echo(json.dumps(now)))
            if as_json
            else (lambda now: advance(now["checked_bytes"], max(total, now["checked_bytes"])))
        )
        while True:
            show(status)
            if status["state"] != "running":
                return status
            time.sleep(POLL)
            status = read_status(directory)["scrub"]


def _report(status: Status) -> None:
    for bad in status["bad"]:
        say(f"damaged: {bad['path']}: {bad['reason']}")
    verdict = f"{status['damaged']} damaged, quarantined" if status["damaged"] else "no damage"
    say(f"{status['state']}: {status['objects']} files, {human_size(status['checked_bytes'])} verified; {verdict}")
