"""Committed objects never change: every writing process has a version of its own, and the last close publishes it
whole.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from mount.actors import Actor, errno_of, eventually, load, pattern, put, pwrite_direct, store

OLD = pattern("old", 700_001)
NEW = pattern("new", 300_003)


def published(path: Path, content: bytes) -> bool:
    """Whether the name shows the content by now. Never anything between the old and the new."""
    try:
        return load(path) == content
    except FileNotFoundError:
        return False


def test_a_new_object_is_published_whole_at_close(kv: Path) -> None:
    """ENOENT for others while it is written; its inode number stays after it is published."""
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_RDWR | os.O_CREAT)
        writer.write_all(fd, OLD)
        assert errno_of(os.stat, kv / "x") == "ENOENT"
        assert errno_of(os.open, kv / "x", os.O_RDONLY) == "ENOENT"
        assert writer.stat(kv / "x").st_size == len(OLD)
        inode = writer.fstat(fd).st_ino
        writer.close(fd)
        eventually(lambda: published(kv / "x", OLD), "published after close")
        assert os.stat(kv / "x").st_ino == inode


def test_an_inode_never_holds_two_contents(kv: Path) -> None:
    """The old inode and its bytes stay until the new version is published, under an inode of its own."""
    put(kv / "x", OLD)
    before = os.stat(kv / "x")
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_RDWR)
        inode = writer.fstat(fd).st_ino
        assert inode != before.st_ino
        assert writer.read(fd, 1 << 20) == OLD
        writer.pwrite(fd, b"changed", 1000)
        writer.ftruncate(fd, 500_000)
        now = os.stat(kv / "x")
        assert (now.st_ino, now.st_size) == (before.st_ino, before.st_size)
        assert load(kv / "x") == OLD
        writer.close(fd)
        changed = OLD[:1000] + b"changed" + OLD[1007:500_000]
        eventually(lambda: os.stat(kv / "x").st_ino == inode, "the version's inode is the object's")
        assert load(kv / "x") == changed


def test_old_readers_keep_their_bytes(kv: Path) -> None:
    """A mapping and a handle taken before the replacement show the old bytes during and after it: no SIGBUS, no
    mixture.
    """
    put(kv / "x", OLD)
    with Actor() as reader, Actor() as writer:
        handle = reader.open(kv / "x", os.O_RDONLY)
        touched, untouched = reader.map_file(handle, len(OLD)), reader.map_file(handle, len(OLD))
        assert reader.map_read(touched) == OLD
        reader.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_TRUNC)
        assert reader.map_read(touched) == OLD
        writer.write_all(fd, NEW)
        assert reader.map_read(untouched, 400_000, 600_000) == OLD[400_000:600_000]
        assert reader.fstat(handle).st_size == len(OLD)
        writer.close(fd)
        eventually(lambda: published(kv / "x", NEW), "published")
        assert reader.map_read(touched) == reader.map_read(untouched) == OLD
        assert reader.pread(handle, 1 << 20, 0) == OLD
        assert reader.load(kv / "x") == NEW
        assert reader.fstat(handle).st_size == len(OLD)


def test_truncate_by_path_is_published_within_the_call(kv: Path) -> None:
    """There is no handle whose close could publish it. Old readers keep the old length."""
    put(kv / "x", OLD)
    with Actor() as reader, Actor() as writer:
        handle = reader.open(kv / "x", os.O_RDONLY)
        mapping = reader.map_file(handle, len(OLD))
        before = reader.fstat(handle).st_ino
        writer.truncate(kv / "x", 123_457)
        assert os.stat(kv / "x").st_size == 123_457
        assert os.stat(kv / "x").st_ino != before
        assert load(kv / "x") == OLD[:123_457]
        writer.truncate(kv / "x", 400_000)
        assert load(kv / "x") == OLD[:123_457] + bytes(400_000 - 123_457)
        writer.truncate(kv / "x", 0)
        assert os.stat(kv / "x").st_size == 0
        assert load(kv / "x") == b""
        assert reader.map_read(mapping) == OLD
        assert reader.pread(handle, 1 << 20, 0) == OLD


def test_truncate_of_an_absent_name(kv: Path) -> None:
    """Nothing appears."""
    assert errno_of(os.truncate, kv / "absent", 5) == "ENOENT"
    assert os.listdir(kv) == []


def test_closed_unmodified_it_is_dropped(kv: Path) -> None:
    """Opening for writing is no change: the same object, inode, generation and times stay."""
    put(kv / "x", OLD)
    before = os.stat(kv / "x")
    generation = os.getxattr(kv / "x", "user.hcfs.generation")
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_RDWR)
        assert writer.pread(fd, 10, 5) == OLD[5:15]
        writer.close(fd)
        eventually(lambda: writer.stat(kv / "x").st_ino == before.st_ino, "the version is dropped")
    after = os.stat(kv / "x")
    assert (after.st_ino, after.st_mtime_ns, after.st_size) == (before.st_ino, before.st_mtime_ns, before.st_size)
    assert os.getxattr(kv / "x", "user.hcfs.generation") == generation
    assert load(kv / "x") == OLD


def test_touch_copies_nothing(kv: Path) -> None:
    """touch opens for writing and sets times: the committed object gets them and keeps its inode and its extents."""
    put(kv / "weights", OLD)
    before = os.stat(kv / "weights")
    extents = os.getxattr(kv / "weights", "user.hcfs.extents")
    subprocess.run(["touch", "-d", "2001-02-03 04:05:06.123456789 UTC", kv / "weights"], check=True)
    after = eventually(
        lambda: (now := os.stat(kv / "weights")).st_mtime_ns == 981_173_106_123_456_789 and now, "the time is set"
    )
    assert after.st_atime_ns == 981_173_106_123_456_789
    assert (after.st_ino, after.st_size, after.st_mode) == (before.st_ino, before.st_size, before.st_mode)
    assert os.getxattr(kv / "weights", "user.hcfs.extents") == extents
    subprocess.run(["touch", kv / "weights"], check=True)
    eventually(lambda: os.stat(kv / "weights").st_mtime_ns >= before.st_mtime_ns, "touch sets the present time")
    assert os.stat(kv / "weights").st_ino == before.st_ino
    assert load(kv / "weights") == OLD


def test_attribute_changes_through_an_unmodified_handle(kv: Path) -> None:
    """fchmod, fchown, futimens and fsetxattr on a handle that writes nothing go to the committed object."""
    put(kv / "x", OLD)
    inode = os.stat(kv / "x").st_ino
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY)
        writer.fchmod(fd, 0o600)
        writer.fchown(fd, 1234, 4321)
        writer.utime(fd, ns=(1_000_000_001, 2_000_000_002))
        writer.setxattr(fd, "user.note", b"kept")
        writer.close(fd)
        after = eventually(lambda: (now := os.stat(kv / "x")).st_mtime_ns == 2_000_000_002 and now, "attributes arrive")
    assert (after.st_ino, after.st_mode & 0o7777, after.st_uid, after.st_gid) == (inode, 0o600, 1234, 4321)
    assert os.getxattr(kv / "x", "user.note") == b"kept"
    assert load(kv / "x") == OLD


def test_attributes_of_a_version_are_published_with_it(kv: Path) -> None:
    """What the writer sets on its own version is seen by others with the new bytes, not before."""
    put(kv / "x", OLD)
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_TRUNC)
        writer.write_all(fd, NEW)
        writer.fchmod(fd, 0o640)
        writer.setxattr(kv / "x", "user.rev", b"2")
        assert writer.stat(kv / "x").st_mode & 0o7777 == 0o640
        assert os.stat(kv / "x").st_mode & 0o7777 == 0o644
        assert errno_of(os.getxattr, kv / "x", "user.rev") == "ENODATA"
        writer.close(fd)
        eventually(lambda: published(kv / "x", NEW), "published")
    assert os.stat(kv / "x").st_mode & 0o7777 == 0o640
    assert os.getxattr(kv / "x", "user.rev") == b"2"


def test_truncating_open_alone_empties(kv: Path) -> None:
    """O_TRUNC is a size change, published at close; a created file that was never written is an empty object."""
    put(kv / "x", OLD)
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_TRUNC)
        assert load(kv / "x") == OLD
        writer.close(fd)
        eventually(lambda: published(kv / "x", b""), "emptied")
        writer.close(writer.open(kv / "created", os.O_WRONLY | os.O_CREAT))
        eventually(lambda: published(kv / "created", b""), "created")


def test_copy_on_write_of_a_large_object(kv: Path) -> None:
    """Seeded random writes over an old object of several granules: unwritten parts are the old ones, gaps are zeros."""
    chance = random.Random(20)
    model = bytearray(pattern("base", 3_000_001))
    put(kv / "x", bytes(model))
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_RDWR)
        for step in range(40):
            offset, length = chance.randrange(3_500_000), chance.choice([1, 7, 4096, 5000, 70_000])
            if len(model) < offset:
                model.extend(bytes(offset - len(model)))
            model[offset : offset + length] = piece = pattern(step, length)
            assert writer.pwrite(fd, piece, offset) == length
            probe = chance.randrange(len(model))
            assert writer.pread(fd, 9000, probe) == model[probe : probe + 9000]
        writer.close(fd)
    eventually(lambda: published(kv / "x", bytes(model)), "published")


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


def test_writing_through_one_hard_link_separates_it(kv: Path) -> None:
    """The other names keep the old object."""
    put(kv / "a", OLD)
    os.link(kv / "a", kv / "b")
    assert os.stat(kv / "a").st_ino == os.stat(kv / "b").st_ino
    assert os.stat(kv / "b").st_nlink == 2
    store(kv / "a", NEW)
    eventually(lambda: published(kv / "a", NEW), "published")
    assert load(kv / "b") == OLD
    assert os.stat(kv / "a").st_ino != os.stat(kv / "b").st_ino
    eventually(lambda: os.stat(kv / "b").st_nlink == 1, "one name left")


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


def test_inode_numbers_are_not_reused(kv: Path) -> None:
    """200 replacements of one name: 200 inode numbers."""
    inodes = {store(kv / "x", b"%d" % number) for number in range(200)}
    assert len(inodes) == 200


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
