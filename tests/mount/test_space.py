"""Space that must come back: after kills in the middle of writes, and whoever was writing."""

from __future__ import annotations

import contextlib
import io
import os
import random
import threading
from collections.abc import Callable

from lab.harness.actors import load, pattern, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

MIB = 1 << 20
MARKS = "high_watermark=1,low_watermark=0.99"
"""Nothing is evicted before a writer finds no room."""


def space(mount: Mount) -> dict[str, int]:
    """The status with everything durable."""
    fd = os.open(mount.dir, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    status = mount.status()
    parts = ("used_bytes", "free_bytes", "staged_bytes", "pending_bytes", "quarantined_bytes")
    assert sum(status[part] for part in parts) == status["capacity_bytes"]
    return status


def test_a_device_fills_to_the_last_byte_after_kills_in_the_middle_of_writes(make_mount: Callable[..., Mount]) -> None:
    """What was being written, or waited under a staging name, is free after each kill; a quota changes nothing."""
    mount = make_mount(size="48M", options=f"lookup_grace=0,commit_interval=0.05,{MARKS}")
    kv = mount.ns()
    os.setxattr(kv, "user.hcfs.quota", b"1G")
    space(mount)  # the first kill may come before anything else makes the namespace durable
    chance = random.Random(1)
    for kill in range(4):
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(open(kv / f"{number}.tmp", "wb", buffering=0)) for number in range(4)]

            def write(files: list[io.FileIO] = files, kill: int = kill) -> None:
                with contextlib.suppress(OSError):
                    for step in range(1000):
                        files[step % 4].write(bytes(100_000))
                        if step == 20:
                            put(kv / f"kept{kill}", pattern(kill, 100_000))

            writer = threading.Thread(target=write)
            writer.start()
            while mount.status()["staged_bytes"] < chance.uniform(1, 8) * MIB:
                pass
            mount.kill()
            writer.join()
            for file in files:
                with contextlib.suppress(OSError):
                    file.close()
        mount.mount()
        after = space(mount)
        assert (after["staged_bytes"], after["pending_bytes"]) == (0, 0)
        assert after["used_bytes"] <= (kill + 1) * 102_400
    number = 0
    while free := space(mount)["free_bytes"]:
        put(kv / f"fill{number}", b"f" * min(free, MIB))
        number += 1
    full = space(mount)
    assert full["used_bytes"] == full["capacity_bytes"]
    assert full["counters"]["evictions"] == 0  # type: ignore[index]
    for kill in range(4):
        if (kv / f"kept{kill}").exists():
            assert load(kv / f"kept{kill}") == pattern(kill, 100_000)
    for name in os.listdir(kv):
        os.unlink(kv / name)
    empty = space(mount)
    assert empty["free_bytes"] == empty["largest_free_bytes"] == empty["capacity_bytes"]
    mount.umount()
    hcfs("fsck", mount.source)
