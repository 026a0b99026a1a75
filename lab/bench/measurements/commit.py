"""How long it takes to store one object, call by call, against one write of the same length straight to the device:
`commit` is close and rename, after which everybody sees the object. Median and 99th percentile of each round."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lab.bench.rounds import Case
from lab.bench.session import Session, add_arguments, run_cases, text

__all__ = ["arguments", "run", "text"]

MEDIAN, P99 = "store median ms", "store p99 ms"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser)
    parser.add_argument("--size-kb", type=int, default=14336, help="KiB of an object (default 14336)")
    parser.add_argument("--count", type=int, default=100, help="objects in each round (default 100)")
    parser.add_argument("--threads", default="1", help="threads that store; several with commas (default 1)")
    parser.add_argument("--buffered", action="store_true", help="through the page cache instead of O_DIRECT")


def run(args: argparse.Namespace) -> dict[str, Any]:
    return run_cases(args, cases)


def cases(session: Session) -> list[Case]:
    return [case(session, int(threads)) for threads in session.args.threads.split(",")]


def case(session: Session, threads: int) -> Case:
    args = session.args
    size, count = (256 << 10, 20) if session.quick else (args.size_kb << 10, args.count)
    words: dict[str, Any] = {"count": count, "size": size, "threads": threads}

    def device() -> Mapping[str, float]:
        session.backing.settle()
        times = session.client("raw", path=session.backing.device, direct=True, **words)["total_ms"]
        return {MEDIAN: statistics.median(times), P99: percentile(times, 99)}

    def filesystem(name: str) -> Mapping[str, float]:
        with session.filesystem(name) as mounted:
            times = session.client("store", dir=mounted.directory, direct=not args.buffered, **words)
        write, total, commit = (statistics.median(times[f"{step}_ms"]) for step in ("write", "total", "commit"))
        return {
            MEDIAN: total,
            P99: percentile(times["total_ms"], 99),
            "write median ms": write,
            "commit median ms": commit,
            "commit p99 ms": percentile(times["commit_ms"], 99),
            "store/write median": total / write,
            "store/write p99": percentile(times["total_ms"], 99) / percentile(times["write_ms"], 99),
        }

    candidates = {"device": device} | {name: partial(filesystem, name) for name in session.filesystems}
    title = f"{count} objects of {size >> 10} KiB, {session.direct_names[not args.buffered]}, {threads} threads"
    return Case(title, candidates, (MEDIAN, P99), base="device")


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent of the values don't exceed."""
    ordered = sorted(values)
    return ordered[-(-len(ordered) * percent // 100) - 1]
