"""A safetensors file of an origin that sends at a bounded rate, opened with --origin-open stream and whole in turn:
when the open returns, when the first and the last byte are there, and the first and the last tensor of hcfs.weights."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hcfs.weights import stream
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.origins.clients import ALLOWED, evict_all, namespace
from lab.harness.origins.s3 import S3
from lab.harness.origins.server import Fault
from lab.harness.places import Place
from lab.harness.weights import noise, safetensors

PIECE = 64 << 10
"""What the server sends between two pauses."""

Times = dict[str, float]
"""Seconds since the call of open, by event."""


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/lab streaming", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tensors", type=int, default=32, help="of 1 MiB each")
    parser.add_argument("--rate", type=float, default=8.0, help="MiB/s that the origin sends at most")
    parser.add_argument("--data-plane", default="on", choices=("on", "off"))
    options = parser.parse_args(words)
    model = safetensors({f"model.layers.{n}.w": ("U8", [1 << 20], noise(1 << 20, n)) for n in range(options.tensors)})
    server = S3()
    try:
        os.environ.update(server.environment())
        with Place.make("hcfs-streaming-") as place:
            _measure(place, server, model, options)
    finally:
        server.close()
    return 0


def _measure(place: Path, server: S3, model: bytes, options: argparse.Namespace) -> None:
    hcfs("mkfs", place / "image", "--size", "512M")
    mount = Mount(place / "image", place / "mnt", options=f"lookup_grace=0,data_plane={options.data_plane},{ALLOWED}")
    taken: dict[tuple[str, str], list[Times]] = {}
    try:
        mount.mount()
        directories = {
            way: namespace(mount, server, {"model.safetensors": model}, name=way, origin_open=way)[0]
            for way in ("stream", "whole")
        }
        server.faults = lambda asked, _: None if asked.lists else Fault(slow=PIECE / (options.rate * (1 << 20)))
        for _ in range(options.rounds):
            for way, directory in directories.items():
                for what, read in READS.items():
                    path = directory / "model.safetensors"
                    os.stat(path)
                    taken.setdefault((what, way), []).append(read(path, model))
                    evict_all(mount, directory)
    finally:
        mount.close()
    print(f"{len(model) / (1 << 20):.0f} MiB at {options.rate:g} MiB/s, medians of {options.rounds} in turn, seconds")
    for what in READS:
        for event in taken[what, "stream"][0]:
            early, late = (statistics.median(each[event] for each in taken[what, way]) for way in directories)
            print(f"{what:8} {event:13} stream {early:6.2f}  whole {late:6.2f}  ratio {early / late:.3f}")


def _bytes(path: Path, model: bytes) -> Times:
    """open, the header as loaders read it, then everything in order."""
    began = time.perf_counter()
    fd = os.open(path, os.O_RDONLY)
    try:
        times = {"open": time.perf_counter() - began}
        length = int.from_bytes(os.pread(fd, 8, 0), "little")
        times["first byte"] = time.perf_counter() - began
        assert json.loads(os.pread(fd, length, 8))
        times["header"] = time.perf_counter() - began
        at = 0
        while part := os.pread(fd, 1 << 20, at):
            assert part == model[at : at + len(part)]
            at += len(part)
        times["last byte"] = time.perf_counter() - began
        assert at == len(model)
    finally:
        os.close(fd)
    return times


def _tensors(path: Path, _: bytes) -> Times:
    """Through hcfs.weights, as `hcfs weights load` reads them."""
    began = time.perf_counter()
    times: Times = {}
    with stream(path, framework="numpy", budget=64 << 20) as tensors:
        for _tensor in tensors:
            times.setdefault("first tensor", time.perf_counter() - began)
    return times | {"last tensor": time.perf_counter() - began}


READS: dict[str, Callable[[Path, bytes], Times]] = {"bytes": _bytes, "tensors": _tensors}
