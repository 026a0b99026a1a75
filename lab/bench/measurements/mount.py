"""How long mounting and unmounting take, with objects on the device, and mounting after the daemon was killed: until
the command returns, when the mount serves."""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lab.bench.backing import is_mounted, unmount_hcfs
from lab.bench.error import BenchError
from lab.bench.rounds import Case
from lab.bench.session import Session, add_arguments, run_cases, text

__all__ = ["arguments", "run", "text"]

MOUNT, UMOUNT, RECOVERY = "mount s", "umount s", "mount after kill s"
PATIENCE_S = 30


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser, device="512M")
    parser.add_argument("--objects", default="0,2000", help="objects of 4 KiB, with commas (default 0,2000)")


def run(args: argparse.Namespace) -> dict[str, Any]:
    return run_cases(args, cases)


def cases(session: Session) -> list[Case]:
    numbers = [20] if session.quick else [int(number) for number in session.args.objects.split(",")]
    return [case(session, number) for number in numbers]


def case(session: Session, objects: int) -> Case:
    candidates: dict[str, Callable[[], Mapping[str, float]]] = {"ext4": partial(ext4, session, objects)}
    candidates |= {name: partial(hcfs, session, name, objects) for name in session.hcfs}
    remark = "ext4's mount is a system call; hcfs starts an interpreter and a daemon"
    return Case(f"{objects} objects", candidates, (MOUNT, UMOUNT), remarks=[remark])


def ext4(session: Session, objects: int) -> Mapping[str, float]:
    fill(session, "ext4", objects)
    start = time.perf_counter()
    with session.filesystem("ext4", remount=True):
        served, end = time.perf_counter(), time.perf_counter()
    return {MOUNT: served - start, UMOUNT: time.perf_counter() - end}


def fill(session: Session, name: str, objects: int) -> None:
    with session.filesystem(name) as mounted:
        if objects:
            session.client("store", dir=mounted.directory, count=objects, size=4096, threads=4)


def hcfs(session: Session, name: str, objects: int) -> Mapping[str, float]:
    fill(session, name, objects)
    start = time.perf_counter()
    with session.filesystem(name, remount=True) as mounted:
        served = time.perf_counter()
        session.client("store", dir=mounted.directory, count=max(1, objects // 10), first=objects, size=4096, threads=4)
        end = time.perf_counter()
    ended = time.perf_counter()
    return {MOUNT: served - start, UMOUNT: ended - end, RECOVERY: after_kill(session, name)}


def after_kill(session: Session, name: str) -> float:
    """Seconds to mount what a killed daemon has left, its dead mount included."""
    directory = session.backing.scratch / "hcfs"
    options = session.hcfs[name]
    try:
        with session.filesystem(name, remount=True) as mounted:
            assert mounted.daemon is not None
            session.client("store", dir=mounted.directory, count=20, first=1 << 20, size=4096, threads=4)
            os.kill(mounted.daemon.pid, signal.SIGKILL)
            wait_for_end(mounted.daemon.pid)
            start = time.perf_counter()
            session.backing.mount(directory, options)
            return time.perf_counter() - start
    finally:
        if is_mounted(directory):
            unmount_hcfs(directory)


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while os.path.exists(f"/proc/{pid}"):
        if time.monotonic() > deadline:
            raise BenchError(f"process {pid} outlived SIGKILL by {PATIENCE_S} s")
        time.sleep(0.005)
