"""What a mount says about its space, compared with itself and with what lies on it."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

PARTS = ("used_bytes", "free_bytes", "staged_bytes", "pending_bytes", "quarantined_bytes")

ODD_LOOKS = 5
"""Times in a row that statfs may differ from a status that was the same before and after it."""


class Finding(Exception):
    """Something that isn't as it must be."""


def must(right: bool, what: str, *details: object) -> None:
    """Raises Finding unless it is right."""
    if not right:
        raise Finding(f"{what}: {' '.join(map(str, details))}")


def consistent(status: dict[str, Any]) -> None:
    """What holds at every moment."""
    parts = {part: status[part] for part in PARTS}
    must(sum(parts.values()) == status["capacity_bytes"], "the parts don't make up the capacity", parts)
    must(min(parts.values()) >= 0, "a part is negative", parts)
    must(status["largest_free_bytes"] <= status["free_bytes"], "a free run is longer than what is free", status)
    for name, usage in status["namespaces"].items():
        quota = usage["quota_bytes"]
        held = usage["used_bytes"] + usage["staged_bytes"]
        must(quota is None or held <= quota, f"namespace {name} is above its quota", held, quota)
        limit = usage["salt_quota_bytes"]
        for salt, nbytes in usage["salts"].items():
            must(limit is None or nbytes <= limit, f"salt {salt} is above its quota", nbytes, limit)


class Sampler:
    """Looks at status and statfs all the time, in a thread of its own; `finish` raises what it found."""

    def __init__(self, mount: Mount) -> None:
        self.looks = self.compared = self._odd = 0
        self._mount = mount
        self._problem: Exception | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._done.wait(0.01):
                self._look()
        except Exception as error:
            self._problem = error

    def _look(self) -> None:
        before, space, after = self._mount.status(), os.statvfs(self._mount.dir), self._mount.status()
        for status in (before, after):
            consistent(status)
        self.looks += 1
        fields = ("free_bytes", "evictable_bytes", "capacity_bytes")
        if all(before[field] == after[field] for field in fields):
            told = (space.f_bfree * 4096, (space.f_bavail - space.f_bfree) * 4096, space.f_blocks * 4096)
            if told == tuple(before[field] for field in fields):
                self.compared += 1
                self._odd = 0
                return
            # A write between the two may have taken blocks and given them back; not time after time.
            self._odd += 1
            must(self._odd < ODD_LOOKS, "statfs isn't the status", told, before)

    def finish(self) -> None:
        """End; raises what was found."""
        self._done.set()
        self._thread.join()
        if self._problem is not None:
            raise self._problem


def settle(mount: Mount) -> dict[str, Any]:
    """Make everything durable; the status then."""
    fd = os.open(mount.dir, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    status = mount.status()
    consistent(status)
    return status


def reached(directory: Path) -> int:
    """Bytes that du counts: blocks of all files, those with several names once."""
    seen: dict[int, int] = {}
    for path, _, files in os.walk(directory):
        for name in files:
            with suppress(FileNotFoundError):  # a staging name that another process has
                stat = os.lstat(os.path.join(path, name))
                seen[stat.st_ino] = stat.st_blocks * 512
    return sum(seen.values())


def until(condition: Any, what: str, seconds: float = 60.0) -> None:
    """Wait for what happens in the background."""
    deadline = time.monotonic() + seconds
    while not condition():
        must(time.monotonic() < deadline, f"not within {seconds:g} s", what)
        time.sleep(0.02)


def check_image(mount: Mount, status: dict[str, Any]) -> None:
    """Unmount; fsck must be clean and tell the same space, to the byte."""
    mount.umount()
    done = hcfs("fsck", mount.source, "--data", "--json", check=False)
    report = json.loads(done.stdout)
    must(done.returncode == 0, "fsck isn't clean", report["problems"])
    for field in ("used_bytes", "free_bytes", "quarantined_bytes", "capacity_bytes"):
        must(report[field] == status[field], f"fsck tells other {field}", report[field], status[field])
