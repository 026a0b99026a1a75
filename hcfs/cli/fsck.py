"""`hcfs fsck`: whether everything on a device or image is as the format demands."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from hcfs.cli.arguments import json_option, target_argument
from hcfs.cli.devices import open_target
from hcfs.cli.output import print_fields, print_json, progress
from hcfs.store.check import Report, check
from hcfs.store.inspect import superblock_fields

CLEAN, ERRORS_LEFT = 0, 4


@click.command(short_help="Check a store that isn't mounted.")
@target_argument
@click.option("--data", is_flag=True, help="Read and verify every byte of every object, too.")
@json_option
def command(target: str, data: bool, as_json: bool) -> int:
    """Check all metadata of the store on TARGET, a device, an image, UUID=... or LABEL=..., and write nothing.

    Exit code: 0 clean, 4 errors found, 8 the check could not run.
    """
    with open_target(target, exclusive=True) as device, progress("verify data") as advance:
        report = check(device, data=data, progress=advance)
    document = _document(report)
    if as_json:
        print_json(document)
    else:
        _print(target, document)
    return CLEAN if report.clean else ERRORS_LEFT


def _document(report: Report) -> dict[str, Any]:
    return {"clean": report.clean, **asdict(report), "superblock": superblock_fields(report.superblock)}


def _print(target: str, document: dict[str, Any]) -> None:
    problems = document["problems"]
    for problem in problems:
        click.echo(f"{problem['kind']}: {problem['where']}: {problem['detail']}")
    counts = {name: value for name, value in document.items() if name not in ("clean", "problems", "superblock")}
    print_fields(counts)
    verdict = "clean" if not problems else f"{len(problems)} error{'s' * (len(problems) > 1)} left"
    click.echo(f"{target}: {verdict}")
