"""Runs of openers: in each, threads open one file of an S3 origin at once and read it in several orders while it comes,
and it is counted how often it is fetched."""

from __future__ import annotations

import argparse
import errno
import itertools
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.origins.clients import ALLOWED, Together, evict_all, namespace
from lab.harness.origins.readers import WAYS
from lab.harness.origins.s3 import S3
from lab.harness.origins.server import Asked, Fault
from lab.harness.places import Place


def main(words: Sequence[str]) -> int:
    """Exit code 1 when a run fetched other than once, or an opener got anything but the file."""
    parser = argparse.ArgumentParser(prog="tools/lab openers", description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--openers", type=int, default=64)
    parser.add_argument("--size", type=int, default=4_000_001, help="bytes of the file")
    parser.add_argument("--load", type=int, default=2 * (os.cpu_count() or 1), help="processes that keep the CPUs busy")
    parser.add_argument("--cuts", type=float, default=0.3, help="part of the runs whose connection is cut once")
    parser.add_argument("--wrong", type=float, default=0.2, help="part of the runs whose first bytes are wrong ones")
    parser.add_argument("--origin-open", default="stream", choices=("stream", "whole"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data-plane", default="on", choices=("on", "off"))
    options = parser.parse_args(words)
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.load)]
    server = S3()
    try:
        os.environ.update(server.environment())
        with Place.make("hcfs-openers-") as place:
            return _runs(place, server, options)
    finally:
        server.close()
        for process in load:
            process.kill()
            process.wait()


def _runs(place: Path, server: S3, options: argparse.Namespace) -> int:
    chance = random.Random(options.seed)
    content = chance.randbytes(options.size)
    hcfs("mkfs", place / "image", "--size", "128M")
    mount = Mount(
        place / "image",
        place / "mnt",
        options=f"lookup_grace=0,data_plane={options.data_plane},{ALLOWED}",
        allow_warnings=("isn't fetched",),
    )
    bad = 0
    try:
        mount.mount()
        directory, prefix = namespace(mount, server, {"model": content}, origin_open=options.origin_open)
        for run in range(options.runs):
            server.fresh()
            word, at = _fault(chance, options)
            fault = {"cut": Fault(cut_after=at), "wrong": Fault(flip=at)}.get(word)
            server.faults = partial(_once, fault)
            reader = _Reader(directory / "model")
            answers = Together(options.openers, reader.read).join()
            fetches = len(server.gets(f"{prefix}/model"))
            right = sum(answer == content for answer in answers)
            refused = word == "wrong" or not reader.failures
            good = right == options.openers and fetches == (1 if fault is None else 2) and refused
            bad += not good
            print(
                f"run {run}: {right}/{options.openers} right, {fetches} requests, {reader.failures} reads that failed, "
                f"{word} {at if fault else ''}",
                flush=True,
            )
            evict_all(mount, directory)
    finally:
        mount.close()
    print(f"{options.runs - bad} of {options.runs} runs good")
    return 1 if bad else 0


def _once(fault: Fault | None, asked: Asked, number: int) -> Fault | None:
    """For the first request that isn't a listing."""
    return fault if not asked.lists and number == 0 else None


def _fault(chance: random.Random, options: argparse.Namespace) -> tuple[str, int]:
    drawn, at = chance.random(), chance.randrange(options.size)
    if drawn < options.cuts:
        return "cut", at
    return ("wrong" if drawn < options.cuts + options.wrong else "no fault"), at


class _Reader:
    """Reads in one way after another; an EIO, as wrong bytes give it, is followed by another open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ways = itertools.cycle(WAYS)
        self.failures = 0

    def read(self) -> bytes:
        way = next(self._ways)
        for _ in range(5):
            try:
                return way(self._path)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                self.failures += 1
        return way(self._path)
