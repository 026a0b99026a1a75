"""Whether what many threads wrote at once reads back as fast as what one wrote: objects stored 1, 8 and 16 ways in
parallel, and one object written so in pieces, each read back from a fresh mount with O_DIRECT."""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lab.bench.backing import MIB
from lab.bench.rounds import Case
from lab.bench.session import Session, add_arguments, run_cases, text

__all__ = ["arguments", "run", "text"]

READERS = (1, 4)


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser)
    parser.add_argument("--ways", default="8,16", help="threads that write, with commas (default 8,16)")
    parser.add_argument("--size-kb", type=int, default=14336, help="KiB of an object (default 14336)")
    parser.add_argument("--mib", type=int, default=896, help="MiB that are written (default 896)")


def run(args: argparse.Namespace) -> dict[str, Any]:
    return run_cases(args, cases)


def cases(session: Session) -> list[Case]:
    ways = [1, *([8] if session.quick else [int(number) for number in session.args.ways.split(",")])]
    mib, size = (32, MIB) if session.quick else (session.args.mib, session.args.size_kb << 10)
    count = (mib << 20) // size
    judged = [measure(readers) for readers in READERS]
    return [
        each
        for name in session.hcfs
        # Most of a quick round would be mounting: one of the two shows that it works.
        for each in (
            Case(
                f"{name}: {count} objects of {size >> 10} KiB",
                {title(number): partial(objects, session, name, number, count, size) for number in ways},
                judged,
                base=title(1),
            ),
            Case(
                f"{name}: one object of {mib} MiB in pieces of 1 MiB",
                {title(number): partial(pieces, session, name, number, mib << 20) for number in ways},
                judged,
                base=title(1),
            ),
        )[: 1 if session.quick else 2]
    ]


def title(ways: int) -> str:
    return "written serially" if ways == 1 else f"written {ways} ways"


def measure(readers: int) -> str:
    return f"read by {readers} thread{'s' * (readers > 1)} MiB/s"


def objects(session: Session, name: str, ways: int, count: int, size: int) -> Mapping[str, float]:
    with session.filesystem(name) as mounted:
        session.client("store", dir=mounted.directory, count=count, size=size, threads=ways, direct=True)
    with session.filesystem(name, remount=True) as mounted:
        found = {}
        for readers in READERS:
            answer = session.client("load", dir=mounted.directory, count=count, size=size, threads=readers, direct=True)
            found[measure(readers)] = count * size / MIB / answer["seconds"]
        return {**found, "extents an object": extents(list(mounted.directory.iterdir()))}


def pieces(session: Session, name: str, ways: int, size: int) -> Mapping[str, float]:
    with session.filesystem(name) as mounted:
        session.client("pieces", path=mounted.directory / "object", size=size, threads=ways, direct=True)
    with session.filesystem(name, remount=True) as mounted:
        path = mounted.directory / "object"
        found = {}
        for readers in READERS:
            answer = session.client("read", path=path, threads=readers, direct=True)
            found[measure(readers)] = size / MIB / answer["seconds"]
        return {**found, "extents an object": extents([path])}


def extents(paths: list[Path]) -> float:
    """The mean number."""
    return statistics.fmean(os.getxattr(path, "user.hcfs.extents").count(b"@") for path in paths)
