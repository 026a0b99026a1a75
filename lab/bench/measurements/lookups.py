"""Lookups a second (stat, as LMCache asks whether a chunk is there): present and absent names, first and repeated, on
hcfs, ext4 and a pyfuse3 filesystem that answers "absent" to every lookup and does nothing else."""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lab.bench.backing import is_mounted, unmount
from lab.bench.client import object_path
from lab.bench.daemon import Daemon
from lab.bench.error import BenchError
from lab.bench.rounds import Case
from lab.bench.session import Session, add_arguments, run_cases, text
from lab.harness import programs

__all__ = ["arguments", "run", "text"]

EMPTY = "empty pyfuse3"
PRESENT_FIRST, PRESENT, ABSENT_FIRST, ABSENT = (
    f"{name} 1/s" for name in ("present, first", "present, repeated", "absent, first", "absent, repeated")
)
PATIENCE_S = 30


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser, device="512M")
    parser.add_argument("--names", type=int, default=2000, help="names of each kind (default 2000)")
    parser.add_argument("--threads", type=int, default=1, help="threads that look up (default 1)")


def run(args: argparse.Namespace) -> dict[str, Any]:
    return run_cases(args, cases)


def cases(session: Session) -> list[Case]:
    names, threads = 50 if session.quick else session.args.names, session.args.threads
    candidates = {name: partial(lookups, session, name, names) for name in session.filesystems}
    candidates[EMPTY] = partial(empty_handler, session, names)
    title = f"{names} names, {threads} thread{'s' * (threads > 1)}"
    judged = (PRESENT_FIRST, PRESENT, ABSENT_FIRST, ABSENT)
    return [Case(title, candidates, judged, bases={ABSENT_FIRST: EMPTY})]


def lookups(session: Session, name: str, names: int) -> Mapping[str, float]:
    with session.filesystem(name) as mounted:
        session.client("store", dir=mounted.directory, count=names, size=4096, threads=4)
    # Mounted anew, so that the kernel knows no name.
    with session.filesystem(name, remount=True) as mounted:
        present = present_rates(session, mounted.directory, names, mounted.daemon)
        return present | absent_rates(session, mounted.directory, names)


def present_rates(session: Session, directory: Path, names: int, daemon: Daemon | None) -> dict[str, float]:
    present = [object_path(directory, number) for number in range(names)]
    before = daemon.cpu_seconds() if daemon else 0.0
    found = {PRESENT_FIRST: rate(session, present, 0, names)}
    if daemon:
        found["present, first CPU us/lookup"] = (daemon.cpu_seconds() - before) * 1e6 / names
    found[PRESENT] = rate(session, present, seconds(session), names)
    return found


def absent_rates(session: Session, directory: Path, names: int) -> dict[str, float]:
    absent = [object_path(directory, number) for number in range(names, 2 * names)]
    return {
        ABSENT_FIRST: rate(session, absent, 0, 0),
        ABSENT: rate(session, absent, seconds(session), 0),
    }


def rate(session: Session, paths: list[str], length: float, expected: int) -> float:
    """Calls a second; each name once, or all of them again and again for so long."""
    answer = session.client("stat", names=paths, seconds=length, threads=session.args.threads)
    passes = answer["calls"] / len(paths)
    if answer["found"] != expected * passes:
        raise BenchError(f"{answer['found']} of {answer['calls']} lookups found something, not {expected * passes:g}")
    return float(answer["calls"] / answer["seconds"])


def seconds(session: Session) -> float:
    return 0.05 if session.quick else 1.0


def empty_handler(session: Session, names: int) -> Mapping[str, float]:
    directory = session.backing.scratch / "empty"
    directory.mkdir(exist_ok=True)
    with empty_mount(directory):
        return absent_rates(session, directory, names)


@contextmanager
def empty_mount(directory: Path) -> Iterator[None]:
    command = programs.command("lab.bench.empty", directory)
    server = subprocess.Popen(command, env=programs.environment(), start_new_session=True)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not is_mounted(directory):
            if server.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"lab.bench.empty doesn't serve {directory}")
            time.sleep(0.01)
        yield
    finally:
        unmount(directory)
        try:
            server.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
