"""What a reader gets whose file goes between its lookup and its open, between its open and its first read, and while a
read is under way: the old bytes, or an error that says the file is gone; never the bytes that came to its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torture.faulty_disk import FaultyDisk

from lab.harness.actors import Actor, errno_of, eventually, pattern, put, store
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

MIB = 1 << 20
CONTENT = pattern("old", 2 * MIB + 17)
ENDS = ["unlinked", "replaced", "renamed over", "rewritten", "truncated"]


def end(path: Path, how: str) -> None:
    """Make the file something else, or nothing."""
    if how == "unlinked":
        os.unlink(path)
    elif how == "replaced":
        put(path, b"another")
    elif how == "renamed over":
        put(f"{path} other", b"another")
        os.rename(f"{path} other", path)
    elif how == "rewritten":
        store(path, pattern("new", len(CONTENT)))
    elif how == "truncated":
        os.truncate(path, 1)


def use_all_space_anew(mount: Mount, kv: Path) -> None:
    """Store twice the capacity, so that every free block and every row has a new owner."""
    for number in range(mount.status()["capacity_bytes"] * 2 // MIB):
        put(kv / f"fill{number}", pattern(f"fill{number}", MIB))
    assert mount.status()["counters"]["evictions"] > 10


@pytest.fixture
def small(make_mount: Callable[..., Mount]) -> Mount:
    """Lookups protect nothing, so that eviction takes whatever isn't open."""
    return make_mount(size="48M", options="lookup_grace=0,commit_interval=0.1")


def test_between_lookup_and_open(small: Mount) -> None:
    """An O_PATH descriptor is a lookup without an open; opening it anew sends OPEN for the inode that was found."""
    kv = small.ns()
    with Actor() as reader:
        found = {}
        for how in (*ENDS, "evicted"):
            put(kv / how, CONTENT)
            found[how] = reader.open(kv / how, os.O_PATH)
        for how in found:
            end(kv / how, how)
        use_all_space_anew(small, kv)
        for how, fd in found.items():
            assert errno_of(reader.open, f"/proc/self/fd/{fd}", os.O_RDONLY) in ("ESTALE", "ENOENT"), how
            # By name it is what is there now.
            outcome = errno_of(reader.load, kv / how)
            assert outcome == "ENOENT" or reader.load(kv / how) != CONTENT, how


def test_between_open_and_the_first_read(small: Mount) -> None:
    """Also by a mapping that was made and not touched yet."""
    kv = small.ns()
    with Actor() as reader, Actor() as mapper:
        opened, mappings = {}, {}
        for how in ENDS:
            put(kv / how, CONTENT)
            opened[how] = reader.open(kv / how, os.O_RDONLY)
            reader.posix_fadvise(opened[how], 0, 0, os.POSIX_FADV_DONTNEED)
            fd = mapper.open(kv / how, os.O_RDONLY)
            mappings[how] = mapper.map_file(fd, len(CONTENT))
            mapper.close(fd)
        for how in ENDS:
            end(kv / how, how)
        use_all_space_anew(small, kv)
        assert small.status()["pending_bytes"] >= len(ENDS) * len(CONTENT)
        for how in ENDS:
            assert reader.read_all(opened[how]) == CONTENT, how
            assert mapper.map_read(mappings[how]) == CONTENT, how
            reader.close(opened[how])
    eventually(lambda: small.status()["pending_bytes"] == 0, "the space comes back when all are closed")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FaultyDisk]:
    disk = FaultyDisk(tmp_path, "48M")
    try:
        yield disk
    finally:
        disk.close()


def test_while_a_read_is_under_way(disk: FaultyDisk, make_mount: Callable[..., Mount]) -> None:
    """The disk keeps the read back until the file is gone and the device was filled twice over."""
    hcfs("mkfs", disk.path)
    mount = make_mount(disk.path, options="lookup_grace=0,commit_interval=0.1")
    kv = mount.ns()
    put(kv / "x", CONTENT)
    extents = os.getxattr(kv / "x", "user.hcfs.extents").decode().split()
    assert len(extents) == 1
    count, block = map(int, extents[0].partition("+")[2].split("@"))
    with Actor() as reader:
        disk.fail({"operation": "read", "start": block * 4096, "end": (block + count) * 4096})
        try:
            reader.begin("load_direct", kv / "x")
            eventually(lambda: disk.holds, "the read reaches the disk")
            os.unlink(kv / "x")
            use_all_space_anew(mount, kv)
        finally:
            disk.fail()
        assert reader.result() == CONTENT
    eventually(lambda: mount.status()["pending_bytes"] == 0, "the space comes back")
    mount.umount()
    hcfs("fsck", disk.path, "--data")
