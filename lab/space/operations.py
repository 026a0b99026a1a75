"""Random operations of several processes on three namespaces: one without a quota, one with, one whose salts have one.

All the while a sampler compares status and statfs and holds quotas to their word. Between batches everybody pauses:
then du, what the processes hold open or unfinished, status and statfs must agree to the byte; every few batches fsck
too. At the end everything is removed, and every byte, handle and descriptor must have come back.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lab.harness import programs
from lab.harness.cli import hcfs
from lab.harness.images import create_image
from lab.harness.mounts import Mount
from lab.space.looks import Sampler, check_image, must, reached, settle, until
from lab.space.worker import NAMESPACES

SIZE = "96M"
BATCH = 250
"""Operations of each process between two pauses."""
REMOUNT_EVERY = 8
"""Batches between two looks of fsck."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of its own."""
    parser.add_argument("--operations", type=int, default=100_000, help="in all (default: 100000)")
    parser.add_argument("--processes", type=int, default=4, help="that work at once (default: 4)")


class Process:
    """One lab.space.worker."""

    def __init__(self, root: Path, seed: str) -> None:
        self.process = subprocess.Popen(
            programs.command("lab.space.worker", root, seed),
            env=programs.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, **command: Any) -> None:
        """Ask without waiting."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """The answer."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        must(bool(line), "a process has ended")
        answer: dict[str, Any] = json.loads(line)
        must("error" not in answer, "a call failed that mustn't", answer)
        return answer

    def end(self) -> None:
        """End it, and take note of its end."""
        self.process.kill()
        self.process.communicate()


def ask(processes: list[Process], **command: Any) -> list[dict[str, Any]]:
    """Everybody at once."""
    for process in processes:
        process.send(**command)
    return [process.receive() for process in processes]


def compare(mount: Mount, processes: list[Process]) -> dict[str, Any]:
    """Nobody changes anything now: everything must agree to the byte."""
    answers = ask(processes, look=True)
    gone: dict[str, int] = {}
    staged: dict[str, int] = {}
    for answer in answers:
        gone |= answer["gone"]
        staged |= answer["staged"]
    expected = {"staged_bytes": sum(staged.values()), "pending_bytes": sum(gone.values())}
    expected["used_bytes"] = sum(reached(mount.dir / name) for name in NAMESPACES)
    # The kernel sends the last closes in the background, and eviction to a watermark may be under way.
    deadline = time.monotonic() + 30
    while True:
        status = settle(mount)
        found = {field: status[field] for field in expected}
        if found == expected:
            break
        must(time.monotonic() < deadline, "du and what is open aren't the status", f"{expected=} {found=}")
        time.sleep(0.05)
        expected["used_bytes"] = sum(reached(mount.dir / name) for name in NAMESPACES)
    namespaces = status["namespaces"].values()
    must(sum(each["used_bytes"] for each in namespaces) == status["used_bytes"], "namespaces don't sum up", status)
    must(sum(each["staged_bytes"] for each in namespaces) == status["staged_bytes"], "staged don't sum up", status)
    for name in NAMESPACES:
        told = status["namespaces"][name]["used_bytes"]
        must(told == reached(mount.dir / name), f"du of {name} isn't its status", told, reached(mount.dir / name))
    space = os.statvfs(mount.dir)
    must(space.f_bfree * 4096 == status["free_bytes"], "statfs isn't the status", space, status["free_bytes"])
    return status


def prepare(mount: Mount) -> None:
    """Namespaces and their quotas, in relation to the capacity."""
    mount.mount()
    capacity = mount.status()["capacity_bytes"]
    for name in NAMESPACES:
        (mount.dir / name).mkdir()
    os.setxattr(mount.dir / "limited", "user.hcfs.quota", str(capacity // 5).encode())
    os.setxattr(mount.dir / "salted", "user.hcfs.quota", str(capacity // 3).encode())
    os.setxattr(mount.dir / "salted", "user.hcfs.salt_quota", str(capacity // 10).encode())


def run(options: argparse.Namespace, directory: Path) -> None:
    """The campaign. Raises Finding."""
    image = create_image(directory / "space.img", options.size)
    hcfs("mkfs", image)
    allowed = ["can't be published and is abandoned"]
    mount = Mount(image, directory / "mnt", options="lookup_grace=0,commit_interval=0.2", allow_warnings=allowed)
    batches = max(1, options.operations // (BATCH * options.processes))
    looks = compared = 0
    refused: Counter[str] = Counter()
    begun = time.monotonic()
    with ExitStack() as stack:
        stack.callback(mount.close)
        prepare(mount)
        descriptors = len(os.listdir(f"/proc/{mount.pid}/fd"))
        processes = [Process(mount.dir, f"{options.seed} {number}") for number in range(options.processes)]
        for process in processes:
            stack.callback(process.end)
        for batch in range(batches):
            sampler = Sampler(mount)
            ask(processes, run=BATCH)
            sampler.finish()
            looks, compared = looks + sampler.looks, compared + sampler.compared
            compare(mount, processes)
            if batch % REMOUNT_EVERY == REMOUNT_EVERY - 1:
                ask(processes, close=True)
                status = compare(mount, processes)
                # What waits under staging names is given up by the unmount.
                status["free_bytes"] += status["staged_bytes"]
                check_image(mount, status)
                mount.mount()
                print(f"{(batch + 1) * BATCH * options.processes} operations, {looks} looks", flush=True)
        evictions = mount.status()["counters"]["evictions"]
        for answer in ask(processes, remove=True):
            refused.update(answer["refused"])
        for name in NAMESPACES:
            # A file that was closed a moment ago may come to be between find's look into a directory and its removal.
            command = ["find", str(mount.dir / name), "-mindepth", "1", "-delete"]
            until(lambda command=command: subprocess.run(command, check=False).returncode == 0, "everything is removed")
        until(lambda: settle(mount)["free_bytes"] == mount.status()["capacity_bytes"], "an emptied store is all free")
        # The kernel tells of a closed directory some time after its close.
        until(lambda: mount.status()["open_handles"] == 0, "every handle is back")
        status = mount.status()
        must(status["objects"] == status["staged_objects"] == status["open_handles"] == 0, "left over", status)
        must(status["largest_free_bytes"] == status["capacity_bytes"], "free space is in pieces", status)
        found = len(os.listdir(f"/proc/{mount.pid}/fd"))
        must(found <= descriptors + 2, "descriptors leak", descriptors, found)
        check_image(mount, status)
    seconds = time.monotonic() - begun
    print(
        f"{batches * BATCH * options.processes} operations in {seconds:.0f} s, {looks} looks of the sampler"
        f" ({compared} with statfs of the same moment), {batches} pauses, {batches // REMOUNT_EVERY + 1} times fsck,"
        f" {evictions} evictions since the last mount; refused: {dict(refused)}"
    )
