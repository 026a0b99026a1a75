"""Buffered reads of a large file, as loaders of weights make them: cold (nothing of it in the page cache) and warm (the
second time), with one thread and with several, on hcfs and ext4."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

from lab.bench.backing import MIB, size_in_bytes
from lab.bench.daemon import Daemon, Moment, between
from lab.bench.error import BenchError
from lab.bench.rounds import Case
from lab.bench.session import Session, add_arguments, run_cases, text

__all__ = ["arguments", "run", "text"]


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser)
    parser.add_argument("--size", default="1G", help="of the file (default 1G)")
    parser.add_argument("--threads", default="1,4", help="readers, with commas (default 1,4)")


def run(args: argparse.Namespace) -> dict[str, Any]:
    return run_cases(args, cases)


def cases(session: Session) -> list[Case]:
    size = 32 * MIB if session.quick else size_in_bytes(session.args.size)
    readers = [int(number) for number in session.args.threads.split(",")]
    candidates = {name: partial(reads, session, name, size, readers) for name in session.filesystems}
    judged = [measure(kind, number) for number in readers for kind in ("cold", "warm")]
    return [Case(f"a file of {size >> 20} MiB, in pieces of 1 MiB", candidates, judged)]


def warm_reads(daemon: Daemon, before: Moment) -> float:
    """READs since then, but for those that looking takes: none, if the kernel answered from its cache."""
    after = daemon.now()
    looking = between(after, daemon.now())
    return between(before, after).requests.get("READ", 0) - looking.requests.get("READ", 0)


def measure(kind: str, readers: int) -> str:
    return f"{by(readers, kind)} MiB/s"


def by(readers: int, kind: str) -> str:
    return f"{kind}, {readers} thread{'s' * (readers > 1)}"


def reads(session: Session, name: str, size: int, readers: list[int]) -> Mapping[str, float]:
    with session.filesystem(name) as mounted:
        session.client("pieces", path=mounted.directory / "model.safetensors", size=size)
    found: dict[str, float] = {}
    # Mounted anew: what the filesystem itself remembers is gone, too.
    with session.filesystem(name, remount=True) as mounted:
        path, daemon = mounted.directory / "model.safetensors", mounted.daemon
        for number in readers:
            session.client.drop(path)
            moments = [daemon.now()] if daemon else []
            cold = session.client("read", path=path, threads=number)
            moments += [daemon.now()] if daemon else []
            warm = session.client("read", path=path, threads=number)
            if daemon:
                found |= between(*moments).costs(by(number, "cold"), 1)
                found[by(number, "warm") + " READs"] = warm_reads(daemon, moments[1])
            if cold["resident"] > 0.01 or warm["resident"] < 0.99:
                raise BenchError(
                    f"{name}: in the page cache were {cold['resident']:.0%} and then {warm['resident']:.0%}"
                )
            for kind, answer in (("cold", cold), ("warm", warm)):
                found[measure(kind, number)] = answer["bytes"] / MIB / answer["seconds"]
        if daemon:
            found["daemon's peak MiB"] = daemon.peak_mib()
    return found
