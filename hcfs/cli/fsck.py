"""`hcfs fsck`: whether everything on a device or image is as the format demands."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from hcfs.cli.arguments import json_option, target_argument
from hcfs.cli.devices import open_target
from hcfs.cli.output import print_fields, print_json, progress, say, warn
from hcfs.store.check import Report, check
from hcfs.store.inspect import superblock_fields
from hcfs.store.repair import Repair, repair

CLEAN, REPAIRED, ERRORS_LEFT = 0, 1, 4


@click.command(short_help="Check a store that isn't mounted.")
@target_argument
@click.option("--data", is_flag=True, help="Read and verify every byte of every object, too.")
@click.option(
    "--repair",
    "mend",
    is_flag=True,
    help="Repair what needs no guess, then check again. What is lost stays lost: damaged objects are dropped, or with"
    " --data quarantined.",
)
@json_option
def command(target: str, data: bool, mend: bool, as_json: bool) -> int:
    """Check all metadata of the store on TARGET, a device, an image, UUID=... or LABEL=...; without --repair, write
    nothing.

    Exit code: 0 clean, 1 errors found and repaired, 4 errors left, 8 the check could not run, 32 Ctrl-C ended it.
    """
    repairs: list[Repair] = []
    try:
        with open_target(target, exclusive=True, writable=mend) as device, progress("verify data") as advance:
            report = check(device, data=data, progress=advance)
            if mend and not report.clean:
                repairs = repair(device, data=data, progress=advance)
                report = check(device, data=data, progress=advance)
    except KeyboardInterrupt:
        if as_json:
            print_json({"clean": None, "stopped": True, "repairs": [asdict(done) for done in repairs]})
        warn(f"the check of {target} was stopped before its end, so nothing is known of it; give the command again")
        raise
    document = _document(report, repairs)
    if as_json:
        print_json(document)
    else:
        _print(target, document)
    if not report.clean:
        return ERRORS_LEFT
    return REPAIRED if repairs else CLEAN


def _document(report: Report, repairs: list[Repair]) -> dict[str, Any]:
    return {
        "clean": report.clean,
        "stopped": False,
        "repairs": [asdict(done) for done in repairs],
        **asdict(report),
        "superblock": superblock_fields(report.superblock),
    }


def _print(target: str, document: dict[str, Any]) -> None:
    problems, repairs = document["problems"], document["repairs"]
    for done in repairs:
        say(f"repaired: {done['kind']}: {done['where']}: {done['detail']}")
    for problem in problems:
        say(f"{problem['kind']}: {problem['where']}: {problem['detail']}")
    counts = {
        name: value
        for name, value in document.items()
        if name not in ("clean", "stopped", "problems", "repairs", "superblock")
    }
    print_fields(counts)
    verdict = (
        ("repaired, clean" if repairs else "clean")
        if not problems
        else f"{len(problems)} error{'s' * (len(problems) > 1)} left"
    )
    say(f"{target}: {verdict}")
