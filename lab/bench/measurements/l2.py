"""LMCache's own benchmark on the same device: the device's limit (fio), fs_native on ext4, raw_block (posix and
io_uring), and fs_native on hcfs. Every key is verified; hcfs checks a CRC32C of every byte, the others nothing."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from lab.bench.backing import MIB
from lab.bench.backing import run as command
from lab.bench.error import BenchError
from lab.bench.lmcache import WARMUP, LMCache, Workload
from lab.bench.rounds import Case
from lab.bench.session import Session, add_arguments, run_cases, text

__all__ = ["arguments", "run", "text"]

JUDGED = ("store MiB/s", "load MiB/s")
CANDIDATES = ("device", "ext4", "raw_block", "hcfs")
ENGINES = ("posix", "io_uring")
FILLED = 0.85
"""part of the device that a run may store: a filesystem needs some for itself"""
MOST_IN_FLIGHT_MIB = 512
"""LMCache's benchmark keeps two buffers of this size to verify what it loads."""


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser)
    parser.add_argument("--sizes", default="14336", help="KiB of an object; several with commas (512,14336,65536)")
    parser.add_argument("--workers", default="4", help="LMCache's threads; several with commas (2,4,8)")
    parser.add_argument("--modes", default="direct", help="direct, buffered or both with a comma")
    parser.add_argument("--rounds", type=int, default=0, help="LMCache's rounds in a run (default: by the size)")
    parser.add_argument("--candidates", default=",".join(CANDIDATES), help=f"of {', '.join(CANDIDATES)}")


def run(args: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        return run_cases(args, partial(cases, stack=stack))


def cases(session: Session, stack: ExitStack) -> list[Case]:
    args = session.args
    lmcache = LMCache(stack, session.backing.scratch)
    sizes = [512] if session.quick else [int(size) for size in args.sizes.split(",")]
    workers = [int(number) for number in args.workers.split(",")]
    modes = [mode == "direct" for mode in args.modes.split(",")]
    return [
        case(session, lmcache, workload(size, args.rounds, session), number, direct)
        for direct in modes
        for size in sizes
        for number in workers
    ]


def workload(size_kib: int, rounds: int, session: Session) -> Workload:
    """About 1 GiB in a run when the rounds aren't given, and no more than fits on the device."""
    in_flight = 4
    while in_flight > 1 and Workload(size_kib, in_flight, 1).mib > MOST_IN_FLIGHT_MIB:
        in_flight //= 2
    mib = Workload(size_kib, in_flight, 1).mib
    fitting = int(session.backing.size / MIB * FILLED / mib) - WARMUP
    if not rounds:
        rounds = 1 if session.quick else min(max(round(1024 / mib), 2), 16, fitting)
    if fitting < 1:
        raise BenchError(
            f"a device of {session.backing.size >> 20} MiB is too small: a round stores {mib:.0f} MiB twice"
        )
    return Workload(size_kib, in_flight, rounds)


def case(session: Session, lmcache: LMCache, load: Workload, workers: int, direct: bool) -> Case:
    def fs_native(name: str) -> Mapping[str, float]:
        with session.filesystem(name) as mounted:
            spec = {
                "type": "fs_native",
                "base_path": str(mounted.directory),
                "num_workers": workers,
                "use_odirect": direct,
            }
            return lmcache.bench(spec, load, mounted.daemon)

    def raw_block(engine: str) -> Mapping[str, float]:
        session.backing.settle()
        spec = {
            "type": "raw_block",
            "device_path": session.backing.device,
            "slot_bytes": load.size_kib * 1024 + 8192,
            "num_store_workers": workers,
            "num_load_workers": workers,
            "load_checkpoint_on_init": False,
            "io_engine": engine,
            "use_odirect": direct,
            "meta_total_bytes": 16 * MIB,
        }
        return lmcache.bench(spec, load)

    wanted = session.args.candidates.split(",")
    candidates = {}
    if "device" in wanted:
        candidates["device"] = partial(device_limit, session, workers)
    # Always there: the ratios are to it.
    candidates["ext4"] = partial(fs_native, "ext4")
    if "raw_block" in wanted:
        candidates |= {f"raw_block {engine}": partial(raw_block, engine) for engine in ENGINES}
    if "hcfs" in wanted:
        candidates |= {name: partial(fs_native, name) for name in session.hcfs}
    size = f"{load.size_kib >> 10} MiB" if load.size_kib >= 1024 else f"{load.size_kib} KiB"
    title = f"{size} objects, {session.direct_names[direct]}, {workers} workers"
    remark = f"8 keys a submit, {load.in_flight} in flight, {load.rounds} rounds of {load.mib:.0f} MiB in each run"
    return Case(title, candidates, JUDGED, remarks=[remark])


def device_limit(session: Session, workers: int) -> Mapping[str, float]:
    """What fio gets of the device with O_DIRECT and requests of 1 MiB: the better of few and of many in flight, since a
    drive wants many and memory behind a loop device few."""
    session.backing.settle()
    return {
        measure: max(fio(session, operation, jobs, depth) for jobs, depth in ((2, 4), (workers, 16)))
        for operation, measure in (("write", "store MiB/s"), ("read", "load MiB/s"))
    }


def fio(session: Session, operation: str, jobs: int, depth: int) -> float:
    """MiB/s of threads that each read or write their part of the device in order."""
    part = session.backing.size // jobs // MIB
    report = command(
        "fio",
        f"--filename={session.backing.device}",
        "--name=limit",
        f"--rw={operation}",
        "--bs=1M",
        "--direct=1",
        "--ioengine=libaio",
        f"--iodepth={depth}",
        "--thread",
        f"--numjobs={jobs}",
        f"--size={part}M",
        f"--offset_increment={part}M",
        "--time_based",
        f"--runtime={'100ms' if session.quick else '1s'}",
        "--group_reporting",
        "--output-format=json",
    )
    job = json.loads(report[report.index("{") :])["jobs"][0]
    return float(job[operation]["bw_bytes"] / MIB)
