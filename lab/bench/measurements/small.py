"""Small objects: stores and loads a second by threads that do what fs_native does, on hcfs and ext4, and what each
costs the daemon. `durable` counts the fsync of the directory at the end, which makes all of them durable."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

from lab.bench.daemon import between
from lab.bench.rounds import Case
from lab.bench.session import Session, add_arguments, run_cases, text

__all__ = ["arguments", "run", "text"]

STORE, DURABLE, LOAD = "store 1/s", "durable store 1/s", "load 1/s"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser, device="1G")
    parser.add_argument("--sizes", default="4,512", help="KiB of an object, with commas (default 4,512)")
    parser.add_argument("--threads", default="4", help="clients' threads, with commas (default 4)")
    parser.add_argument("--modes", default="direct", help="direct, buffered or both with a comma")
    parser.add_argument("--mib", type=int, default=256, help="MiB of a round, but at most --count objects")
    parser.add_argument("--count", type=int, default=2000, help="most objects of a round (default 2000)")


def run(args: argparse.Namespace) -> dict[str, Any]:
    return run_cases(args, cases)


def cases(session: Session) -> list[Case]:
    args = session.args
    return [
        case(session, int(size), int(threads), mode == "direct")
        for mode in args.modes.split(",")
        for size in args.sizes.split(",")
        for threads in args.threads.split(",")
    ]


def case(session: Session, size_kib: int, threads: int, direct: bool) -> Case:
    count = 20 if session.quick else min(session.args.count, (session.args.mib << 10) // size_kib)
    words = {"count": count, "size": size_kib << 10, "threads": threads, "direct": direct}
    candidates = {name: partial(measure, session, name, words) for name in session.filesystems}
    title = f"{count} objects of {size_kib} KiB, {session.direct_names[direct]}, {threads} threads"
    return Case(title, candidates, (STORE, DURABLE, LOAD))


def measure(session: Session, name: str, words: Mapping[str, Any]) -> Mapping[str, float]:
    count = words["count"]
    with session.filesystem(name) as mounted:
        daemon = mounted.daemon
        moments = [daemon.now()] if daemon else []
        stored = session.client("store", dir=mounted.directory, **words)
        moments += [daemon.now()] if daemon else []
        loaded = session.client("load", dir=mounted.directory, **words)
        moments += [daemon.now()] if daemon else []
        found = {
            STORE: count / stored["seconds"],
            DURABLE: count / (stored["seconds"] + stored["sync_seconds"]),
            LOAD: count / loaded["seconds"],
        }
        if daemon:
            found |= between(moments[0], moments[1]).costs_per_object("store", count)
            found |= between(moments[1], moments[2]).costs_per_object("load", count)
            found["daemon's peak MiB"] = daemon.peak_mib()
    return found
