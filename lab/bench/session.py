"""What the comparing commands share: their options, the backing, the budget, the form of the result."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from lab.bench.backing import Backing, Mounted, hcfs_candidates, size_in_bytes
from lab.bench.client import Client
from lab.bench.levers import Lever
from lab.bench.rounds import Case, Limits, compare, progress
from lab.bench.rounds import text as case_text


def add_arguments(parser: argparse.ArgumentParser, *, device: str = "2G") -> None:
    """Options of every command that compares. device: size of the backing when none is given."""
    parser.add_argument(
        "--backing", choices=["memory", "disk"], default="memory", help="where the loop device's file is"
    )
    parser.add_argument(
        "--directory", type=Path, help="where a disk backing's file is made (default: the temporary one)"
    )
    parser.add_argument("--device", default=device, help=f"size of the loop device (default {device})")
    parser.add_argument(
        "--plane", choices=["auto", "plain", "threads", "both"], default="auto", help="data plane of hcfs"
    )
    parser.add_argument("--options", default="", help="further mount options of hcfs, as for mount -o")
    parser.add_argument(
        "--levers", default="", help="more candidates, with commas: hcfs with small-pages, or read-ahead=KIB"
    )
    parser.add_argument("--repeats", type=int, default=6, help="least rounds of a case (default 6)")
    parser.add_argument("--most", type=int, default=30, help="most rounds of a case (default 30)")
    parser.add_argument("--spread", type=float, default=0.05, help="ratios are to be known this well (default 0.05)")
    parser.add_argument("--budget", type=float, default=300, help="seconds for the whole command (default 300)")
    parser.add_argument("--quick", action="store_true", help="small sizes and one round: does it work here?")
    parser.add_argument("--picture", type=Path, help="also draw the ratios, as an SVG file")


class Session:
    """One run of a command."""

    def __init__(self, args: argparse.Namespace, stack: ExitStack) -> None:
        self.args = args
        self.quick: bool = args.quick
        self.direct_names = {True: "O_DIRECT", False: "buffered"}
        size = size_in_bytes("128M" if args.quick else args.device)
        self.backing = Backing(stack, memory=args.backing == "memory", size=size, parent=args.directory)
        self.client = Client(self.backing.scratch)
        self.hcfs = hcfs_candidates(args.plane, args.options)
        """mount options by candidate"""
        self.levers: dict[str, Lever] = {}
        for lever in [Lever(word) for word in args.levers.split(",") if word]:
            for name, options in list(self.hcfs.items()):
                if name not in self.levers:
                    self.hcfs[f"{name} {lever.word}"] = options
                    self.levers[f"{name} {lever.word}"] = lever
        self.planes: dict[str, Any] = {}
        """what each candidate's daemon says of its data plane"""

    @contextmanager
    def filesystem(self, name: str, *, remount: bool = False) -> Iterator[Mounted]:
        """The candidate of that name ("ext4", "hcfs ..."), mounted; fresh unless it is mounted again."""
        if name == "ext4":
            with self.backing.ext4(remount=remount) as mounted:
                yield mounted
            return
        with self.backing.hcfs(self.hcfs[name], self.levers.get(name), remount=remount) as mounted:
            assert mounted.daemon is not None
            self.planes[name] = mounted.daemon.status().get("data_plane", "plain pyfuse3")
            yield mounted

    @property
    def filesystems(self) -> list[str]:
        return ["ext4", *self.hcfs]


def run_cases(args: argparse.Namespace, cases: Callable[[Session], list[Case]]) -> dict[str, Any]:
    """Make the backing, measure every case with its share of the budget, and take everything down."""
    if args.picture:
        # Here, so that a library that is missing is missed before anything is measured.
        from lab.bench.picture import draw
    began = time.monotonic()
    limits = Limits(1, 1, args.spread) if args.quick else Limits(args.repeats, args.most, args.spread)
    results = []
    with ExitStack() as stack:
        session = Session(args, stack)
        waiting = cases(session)
        while waiting:
            share = (args.budget - (time.monotonic() - began)) / len(waiting)
            results.append(compare(waiting.pop(0), limits, share, progress))
        planes = session.planes
    found = {
        "command": args.command,
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="minutes"),
        "machine": machine(),
        "words": args.words,
        "backing": args.backing,
        "data_plane": planes,
        "seconds": round(time.monotonic() - began),
        "cases": results,
    }
    if args.picture:
        draw(found, args.picture)
    return found


def machine() -> str:
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    return (
        f"{os.cpu_count()} cores, Linux {platform.release().split('-')[0]}, {platform.machine()}, load average {load}"
    )


def text(result: Mapping[str, Any]) -> str:
    """The result for people."""
    heads = [
        f"{result['command']}, {result['date']}, {result['machine']}, loop device over a {result['backing']} file",
        f"data plane: {json.dumps(result['data_plane'])}",
    ]
    return "\n\n".join(["\n".join(heads), *(case_text(case) for case in result["cases"])])
