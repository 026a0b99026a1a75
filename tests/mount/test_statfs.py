"""statfs and df: f_bsize 4096, available counts what can be evicted, free only what is free, no zeros."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from lab.harness.actors import Actor, eventually, put
from lab.harness.mounts import Mount

MIB = 1 << 20


def settled(mount: Mount) -> dict[str, int]:
    """The status once nothing is staged or pending."""
    return eventually(
        lambda: (now := mount.status())["staged_bytes"] == now["pending_bytes"] == 0 and now,
        "nothing staged or pending",
    )


def test_the_numbers(make_mount: Callable[..., Mount]) -> None:
    """Empty, half full and after removal, they are those of the status."""
    mount = make_mount()
    kv = mount.ns()
    for step in ("empty", "half full", "emptied"):
        if step == "half full":
            for number in range(50):
                put(kv / f"{number}", bytes(MIB + 1))
        elif step == "emptied":
            for number in range(50):
                os.unlink(kv / f"{number}")
            os.fsync(fd := os.open(kv, os.O_RDONLY))
            os.close(fd)
        status = settled(mount)
        space = os.statvfs(kv)
        assert (space.f_bsize, space.f_frsize, space.f_namemax) == (4096, 4096, 1024)
        assert space.f_blocks * 4096 == status["capacity_bytes"]
        assert space.f_bfree * 4096 == status["free_bytes"]
        assert space.f_bavail * 4096 == status["free_bytes"] + status["evictable_bytes"]
        assert status["used_bytes"] == (50 * (MIB + 4096) if step == "half full" else 0)
        assert status["evictable_bytes"] <= status["used_bytes"]
        assert space.f_files == status["max_objects"]
        assert 0 < space.f_ffree < space.f_files
        assert 0 < space.f_bavail <= space.f_blocks
    assert os.statvfs(mount.dir).f_blocks == os.statvfs(kv).f_blocks


def test_what_is_pinned_is_not_available(make_mount: Callable[..., Mount]) -> None:
    """An open object can't be evicted, so it isn't counted as available until it is closed."""
    mount = make_mount(options="lookup_grace=0")
    kv = mount.ns()
    put(kv / "x", bytes(8 * MIB))
    before = settled(mount)
    with Actor() as reader:
        fd = reader.open(kv / "x", os.O_RDONLY)
        assert os.statvfs(kv).f_bavail * 4096 == before["free_bytes"] + before["evictable_bytes"] - 8 * MIB
        reader.close(fd)
        eventually(
            lambda: os.statvfs(kv).f_bavail * 4096 == before["free_bytes"] + before["evictable_bytes"], "closed again"
        )
    assert os.statvfs(kv).f_bfree * 4096 == before["free_bytes"]


def test_what_is_staged_is_not_free(make_mount: Callable[..., Mount]) -> None:
    """The bytes of a version in the making are taken off at once, and come back when it is abandoned."""
    mount = make_mount()
    kv = mount.ns()
    free = os.statvfs(kv).f_bfree
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_CREAT)
        writer.write_all(fd, bytes(8 * MIB))
        writer.close(writer.dup(fd))
        assert mount.status()["staged_bytes"] >= 8 * MIB
        assert os.statvfs(kv).f_bfree <= free - 8 * MIB // 4096
        writer.kill()
    eventually(lambda: os.statvfs(kv).f_bfree == free, "abandoned")


def test_df_and_du(shared_mount: Mount, kv: Path) -> None:
    """df names the device and the type, du adds up blocks."""
    for number in range(10):
        put(kv / f"{number}", bytes(100_000))
    done = subprocess.run(
        ["df", "--output=source,fstype,target", kv], check=True, capture_output=True, text=True
    ).stdout.splitlines()[1]
    assert done.split() == [str(shared_mount.source), "fuse.hcfs", str(shared_mount.dir)]
    done = subprocess.run(["du", "-s", "--block-size=1", kv], check=True, capture_output=True, text=True).stdout
    assert int(done.split()[0]) >= 10 * 102_400
    done = subprocess.run(["du", "-sb", kv / "0"], check=True, capture_output=True, text=True).stdout
    assert int(done.split()[0]) == 100_000
