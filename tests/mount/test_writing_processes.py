"""Each writing process has its own version of a name; the handles of one process share it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.harness.actors import Actor, errno_of, eventually, load, pattern, put, pwrite_direct

OLD = pattern("old", 700_001)
NEW = pattern("new", 300_003)


def published(path: Path, content: bytes) -> bool:
    """Whether the name shows the content by now. Never anything between the old and the new."""
    try:
        return load(path) == content
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("first", [0, 1])
def test_two_writers_never_mix(kv: Path, first: int) -> None:
    """Both publish a whole object; the later close wins, whoever opened first."""
    contents = pattern("a", 400_000), pattern("b", 250_000)
    with Actor() as a, Actor() as b:
        writers = (a, b)
        handles = [writer.open(kv / "x", os.O_WRONLY | os.O_CREAT) for writer in writers]
        assert a.fstat(handles[0]).st_ino != b.fstat(handles[1]).st_ino
        for start in range(0, 400_000, 50_000):
            for writer, handle, content in zip(writers, handles, contents, strict=True):
                writer.write_all(handle, content[start : start + 50_000])
        for writer, content in zip(writers, contents, strict=True):
            assert writer.stat(kv / "x").st_size == len(content)
        second = 1 - first
        writers[first].close(handles[first])
        eventually(lambda: published(kv / "x", contents[first]), "the first is published")
        assert writers[second].stat(kv / "x").st_size == len(contents[second])
        writers[second].close(handles[second])
        eventually(lambda: published(kv / "x", contents[second]), "the later one wins")


def test_handles_of_one_process_share_its_version(kv: Path) -> None:
    """Two write handles and a read handle, opened in different threads: one inode, one content, published by the last
    write handle.
    """
    with Actor() as writer:
        first = writer.open(kv / "x", os.O_WRONLY | os.O_CREAT)
        second = writer.in_thread("open", kv / "x", os.O_RDWR)
        reading = writer.in_thread("open", kv / "x", os.O_RDONLY)
        assert writer.fstat(first).st_ino == writer.fstat(second).st_ino == writer.fstat(reading).st_ino
        writer.pwrite(first, b"first  ", 0)
        writer.pwrite(second, b"second", 6)
        assert writer.pread(second, 100, 0) == writer.pread(reading, 100, 0) == b"first second"
        writer.close(first)
        writer.pwrite(second, b"!", 12)
        assert errno_of(os.stat, kv / "x") == "ENOENT"
        writer.close(second)
        eventually(lambda: published(kv / "x", b"first second!"), "published though it is still open for reading")
        assert writer.pread(reading, 100, 0) == b"first second!"


def test_a_reading_process_opens_the_committed_object(kv: Path) -> None:
    """While one process rewrites, another's opens and reads go to the old object; the writer's go to its version."""
    put(kv / "x", OLD)
    with Actor() as writer, Actor() as reader:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_TRUNC)
        writer.write_all(fd, NEW)
        for _ in range(50):
            assert reader.stat(kv / "x").st_size == len(OLD)
            assert writer.stat(kv / "x").st_size == len(NEW)
            assert reader.load(kv / "x") == OLD
            assert writer.load(kv / "x") == NEW
        writer.close(fd)


def test_exclusive_creation_between_processes(kv: Path) -> None:
    """O_CREAT|O_EXCL is EEXIST on a name that is committed, or that another live process has staged."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with Actor() as one, Actor() as two:
        fd = one.open(kv / "x", flags)
        assert errno_of(two.open, kv / "x", flags) == "EEXIST"
        assert errno_of(one.open, kv / "x", flags) == "EEXIST"
        one.close(fd)
        eventually(lambda: published(kv / "x", b""), "published")
        assert errno_of(two.open, kv / "x", flags) == "EEXIST"
        one.open(kv / "y", flags)
        assert errno_of(two.open, kv / "y", flags) == "EEXIST"
        one.kill()
        eventually(lambda: errno_of(two.open, kv / "y", flags) == "ok", "a dead writer's name is free again")


def test_direct_and_buffered_handles_of_one_version(kv: Path) -> None:
    """A process that writes one version through both kinds of handle reads back its bytes through both."""
    model = bytearray(pattern("direct", 64 * 1024))
    with Actor() as writer:
        direct = writer.open(kv / "x", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        buffered = writer.open(kv / "x", os.O_RDWR)
        writer.pwrite_direct(direct, bytes(model), 0)
        writer.pwrite(buffered, b"buffered", 5000)
        model[5000:5008] = b"buffered"
        assert writer.pread_direct(direct, 65536, 0) == model
        writer.pwrite_direct(direct, bytes(4096), 8192)
        model[8192:12288] = bytes(4096)
        assert writer.pread(buffered, 65536, 0) == model
        writer.close(direct)
        writer.close(buffered)
    eventually(lambda: published(kv / "x", bytes(model)), "published")


def test_direct_write_needs_no_alignment_of_lengths(kv: Path) -> None:
    """Odd lengths and skewed buffers through O_DIRECT give exactly those bytes."""
    with Actor() as writer:
        for length in (1, 511, 4095, 4097, 100_001):
            content = pattern(length, length)
            fd = writer.open(kv / "odd", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)
            assert writer.pwrite_direct(fd, content, 0, 64) == length
            writer.close(fd)
            eventually(lambda content=content: published(kv / "odd", content), "published")
            assert os.stat(kv / "odd").st_size == length


def test_a_handle_opened_in_the_observing_process(kv: Path) -> None:
    """The writer itself may be this process: what it reads by name is its own version, at once, without polling."""
    fd = os.open(kv / "mine", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    content = pattern("mine", 8192)
    assert pwrite_direct(fd, content, 0) == 8192
    assert load(kv / "mine") == content
    os.close(fd)
    assert load(kv / "mine") == content
