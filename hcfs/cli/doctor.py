"""`hcfs doctor`: is this machine fit for hcfs, and is this mount well?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

import click

from hcfs.cli.arguments import SIZE, json_option
from hcfs.cli.output import print_json
from hcfs.doctor.finding import Finding
from hcfs.errors import UsageError
from hcfs.printable import printable

_COLOURS = {"ok": "green", "warning": "yellow", "failed": "red"}
FINE, FAILED = 0, 1


@click.command(short_help="Check the machine, and a mount.")
@click.argument("directory", metavar="[DIR]", required=False, type=str)
@click.option("--memory", type=SIZE, help="The --memory of the mount that is planned here.  [default: 256M]")
@json_option
def command(directory: str | None, memory: int | None, as_json: bool) -> int:
    """Check whether hcfs works on this machine, and with DIR whether the mount there is well: a line for each check,
    with the remedy where something is wrong.

    Without DIR a small store is made among the temporary files, mounted, used and removed again. Exit code: 0 nothing
    has failed, warnings or not; 1 something has.
    """
    if memory is not None and directory is not None:
        raise UsageError("--memory is for a mount that is still to be made; leave it out, since DIR has its own")
    findings: list[Finding] = []
    for finding in _checks(directory, memory):
        findings.append(finding)
        if not as_json:
            _print(finding)
    verdicts = Counter[str](finding.verdict for finding in findings)
    if as_json:
        counts = {verdict: verdicts[verdict] for verdict in _COLOURS}
        print_json({**counts, "checks": [asdict(finding) for finding in findings]})
    else:
        click.echo(f"{verdicts['failed']} failed, {verdicts['warning']} warnings, {verdicts['ok']} ok")
    return FAILED if verdicts["failed"] else FINE


def _checks(directory: str | None, memory: int | None) -> Iterator[Finding]:
    from hcfs.doctor import machine  # brings pyfuse3 and trio along
    from hcfs.doctor.clients import lmcache, lmcache_namespaces
    from hcfs.doctor.mounted import mounted, status_of
    from hcfs.doctor.packages import packages
    from hcfs.doctor.trial import trial_mount
    from hcfs.mountpoint.client import resolved
    from hcfs.options.mount_options import MountOptions

    yield from machine.libfuse()
    yield from machine.fuse_device()
    yield from machine.fusermount()
    yield from packages()
    yield from machine.clock()
    yield from machine.dead_mounts(apart=None if directory is None else resolved(directory))
    yield from lmcache()
    if directory is None:
        yield from machine.memory_for(MountOptions().memory if memory is None else memory)
        yield from trial_mount()
        return
    status, found = status_of(directory)
    yield from found
    if status is not None:
        yield from mounted(directory, status)
        yield from lmcache_namespaces(directory, status["namespaces"])


def _print(finding: Finding) -> None:
    verdict = click.style(f"{finding.verdict:<7}", fg=_COLOURS[finding.verdict])
    click.echo(f"{verdict}  {finding.check:<14}  {printable(finding.detail)}")
    if finding.remedy:
        click.echo(f"{'':<7}  {'':<14}  remedy: {printable(finding.remedy)}")
