"""Real mounts on a disk that fails: what is refused, what is kept, and what the status says (docs/reliability.md)."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torture.faulty_disk import FaultyDisk

from lab.harness.actors import Actor, drop_pages, errno_of, eventually, load, load_direct, pattern, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

SIZE = 300_000
LOUD = [".*"]
"""The daemon says loudly what the disk does."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FaultyDisk]:
    disk = FaultyDisk(tmp_path, "96M")
    try:
        yield disk
    finally:
        disk.close()


@pytest.fixture
def mount(disk: FaultyDisk, make_mount: Callable[..., Mount]) -> Mount:
    """A mount with an object, `kept`, that is durable; only fsync commits."""
    hcfs("mkfs", disk.path)
    mount = make_mount(disk.path, options="commit_interval=1h,lookup_grace=0", allow_warnings=LOUD)
    put(mount.ns() / "kept", pattern("kept", SIZE))
    assert sync(mount) == "ok"
    return mount


def sync(mount: Mount) -> str:
    """fsync of a directory."""
    fd = os.open(mount.dir, os.O_RDONLY)
    try:
        return errno_of(os.fsync, fd)
    finally:
        os.close(fd)


def data_start(disk: FaultyDisk) -> int:
    """First byte of the data area; before it are superblock and log."""
    return int(json.loads(hcfs("inspect", disk.path, "superblock", "--json").stdout)["superblock"]["data_start"]) * 4096


def check_again(mount: Mount, disk: FaultyDisk, *maybe: str) -> None:
    """Unmounted in order, with the disk well again: clean, what was durable is there, and the rest whole or absent."""
    hcfs("umount", mount.dir, timeout=60)
    disk.fail()
    hcfs("fsck", disk.path, "--data")
    mount.mount()
    assert mount.status()["state"] == "ok"
    assert load(mount.ns() / "kept") == pattern("kept", SIZE)
    for name in maybe:
        if (mount.ns() / name).exists():
            assert load(mount.ns() / name) == pattern(name, SIZE)
    put(mount.ns() / "afterwards", b"written")
    assert sync(mount) == "ok"


@pytest.mark.parametrize("operation", ["flush", "write"])
def test_a_commit_that_fails_once_is_never_trusted_again(disk: FaultyDisk, mount: Mount, operation: str) -> None:
    """The disk is well again at once, and would answer the second try with success."""
    log = {"end": data_start(disk)} if operation == "write" else {}
    put(mount.ns() / "new", pattern("new", SIZE))
    disk.fail({"operation": operation, "errno": errno.EIO, "times": 1, **log})
    assert sync(mount) in ("EIO", "EROFS")
    for _ in range(3):
        assert sync(mount) in ("EIO", "EROFS")
    status = mount.status()
    assert status["state"] == "read-only"
    assert "durable" in status["state_reason"]
    assert status["counters"]["device_errors"] > 0
    for change in (
        lambda: put(mount.ns() / "refused", b"x"),
        lambda: os.unlink(mount.ns() / "kept"),
        lambda: os.mkdir(mount.ns() / "d"),
        lambda: os.rename(mount.ns() / "kept", mount.ns() / "x"),
        lambda: os.chmod(mount.ns() / "kept", 0),
    ):
        assert errno_of(change) == "EROFS"
    assert load_direct(mount.ns() / "kept") == pattern("kept", SIZE)
    assert load_direct(mount.ns() / "new") == pattern("new", SIZE)
    check_again(mount, disk, "new")


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_write_of_data_that_fails_costs_that_file_alone(disk: FaultyDisk, mount: Mount, code: int) -> None:
    """Its writer hears of it at the write or at the close, and its rename fails too."""
    disk.fail({"operation": "write", "errno": code, "start": data_start(disk), "times": 1})
    path = mount.ns() / "lost.tmp"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    heard = {errno_of(os.write, fd, pattern("lost", SIZE)), errno_of(os.close, fd)}
    assert heard & {"EIO", "ENOSPC"}
    assert errno_of(os.rename, path, mount.ns() / "lost") in ("EIO", "ENOSPC")
    with Actor() as other:
        assert errno_of(other.stat, mount.ns() / "lost") == "ENOENT"
    put(mount.ns() / "next", pattern("next", SIZE))
    assert sync(mount) == "ok"
    assert load_direct(mount.ns() / "next") == pattern("next", SIZE)
    os.unlink(path)
    status = mount.status()
    assert status["state"] == "ok"
    assert status["staged_bytes"] == status["staged_objects"] == 0
    check_again(mount, disk, "next")


def test_a_read_that_fails_makes_a_miss(disk: FaultyDisk, mount: Mount) -> None:
    """Every byte of the other object is still there."""
    put(mount.ns() / "bad", pattern("bad", SIZE))
    assert sync(mount) == "ok"
    extents = os.getxattr(mount.ns() / "bad", "user.hcfs.extents").decode()
    start = int(extents.split("@")[1].split()[0]) * 4096
    disk.fail({"operation": "read", "errno": errno.EIO, "start": start + 8192, "end": start + 12288})
    drop_pages(mount.ns() / "bad")
    assert errno_of(load_direct, mount.ns() / "bad") == "EIO"
    assert errno_of(os.stat, mount.ns() / "bad") == "ENOENT"
    status = mount.status()
    assert (status["state"], status["quarantined_objects"]) == ("ok", 1)
    assert load_direct(mount.ns() / "kept") == pattern("kept", SIZE)
    put(mount.ns() / "bad", pattern("stored again", SIZE))
    assert load_direct(mount.ns() / "bad") == pattern("stored again", SIZE)
    hcfs("umount", mount.dir)
    disk.fail()
    mount.mount()
    assert load(mount.ns() / "kept") == pattern("kept", SIZE)
    assert load(mount.ns() / "bad") == pattern("stored again", SIZE)


@pytest.mark.parametrize("operation", ["read", "write", "flush"])
def test_a_disk_that_stalls(disk: FaultyDisk, mount: Mount, operation: str) -> None:
    """One request of each kind isn't answered for seconds: its caller waits, others go on, and nothing has failed."""
    kv, quiet = mount.ns(), mount.ns("quiet")
    put(kv / "slow", pattern("slow", SIZE))
    assert sync(mount) == "ok"
    start = os.getxattr(kv / "slow", "user.hcfs.extents").decode().split("@")[1].split()[0]
    drop_pages(kv / "slow")
    assert load(kv / "kept") == pattern("kept", SIZE)
    here = {"read": {"start": int(start) * 4096, "end": int(start) * 4096 + 1}, "write": {"start": data_start(disk)}}
    disk.fail({"operation": operation, "times": 1, **here.get(operation, {})})
    with Actor() as waits, Actor() as other:
        if operation == "read":
            waits.begin("load", kv / "slow")
        elif operation == "write":
            waits.begin("put", kv / "new", pattern("new", SIZE))
        else:
            put(kv / "new", pattern("new", SIZE))
            # Changes in a directory whose fsync is under way wait for it: the kernel sees to that.
            fd = waits.open(quiet, os.O_RDONLY)
            waits.begin("fsync", fd)
        eventually(lambda: disk.holds, "a request is held")
        assert other.load(kv / "kept") == pattern("kept", SIZE)
        assert "kept" in other.listdir(kv)
        other.rename(kv / "kept", kv / "moved")
        other.rename(kv / "moved", kv / "kept")
        other.mkdir(kv / "meanwhile")
        assert mount.status()["state"] == "ok"
        time.sleep(3)
        disk.fail()
        answer = waits.result()
        assert operation != "read" or answer == pattern("slow", SIZE)
    assert sync(mount) == "ok"
    status = mount.status()
    assert (status["state"], status["quarantined_objects"], status["counters"]["device_errors"]) == ("ok", 0, 0)
    check_again(mount, disk, "slow", "new")


@pytest.mark.parametrize("way", ["errors", "gone"])
def test_a_disk_that_dies(disk: FaultyDisk, mount: Mount, way: str) -> None:
    """What the kernel has in memory is served, everything else fails in seconds, and the mount can be taken away."""
    held = os.open(mount.ns() / "kept", os.O_RDONLY)
    assert os.pread(held, SIZE, 0) == pattern("kept", SIZE)
    if way == "errors":
        disk.fail(*({"operation": each, "errno": errno.EIO} for each in ("read", "write", "flush")))
    else:
        disk.die()
    began = time.monotonic()
    assert os.pread(held, SIZE, 0) == pattern("kept", SIZE)
    fd = os.open(mount.ns() / "new", os.O_WRONLY | os.O_CREAT)
    assert {errno_of(os.write, fd, pattern("new", SIZE)), errno_of(os.close, fd)} & {"EIO", "ENOSPC"}
    os.mkdir(mount.ns() / "d")
    assert sync(mount) in ("EIO", "EROFS")
    assert sync(mount) in ("EIO", "EROFS")
    assert mount.status()["state"] == "read-only"
    assert hcfs("status", mount.dir, "--json").returncode == 0
    assert sorted(name for name in os.listdir(mount.ns()) if name != "d") == ["kept"]
    os.close(held)
    hcfs("umount", mount.dir, timeout=60)
    assert time.monotonic() - began < 60
    if way == "errors":
        disk.fail()
        hcfs("fsck", disk.path, "--data")
        mount.mount()
        assert load(mount.ns() / "kept") == pattern("kept", SIZE)
