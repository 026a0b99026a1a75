"""Committed objects never change: a write-open makes a version, a view of the old object until its first write."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

from lab.harness.actors import Actor, errno_of, eventually, load, pattern, put, store

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
        eventually(lambda: reader.fstat(handle).st_nlink == 0, "the kernel is told that what it has open has no name")


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
    for _ in range(20):
        # However soon after the write: both times are read from one clock.
        put(kv / "soon", OLD)
        written = os.stat(kv / "soon").st_mtime_ns
        os.utime(kv / "soon")
        assert os.stat(kv / "soon").st_mtime_ns >= written
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


def test_inode_numbers_are_not_reused(kv: Path) -> None:
    """200 replacements of one name: 200 inode numbers."""
    inodes = {store(kv / "x", b"%d" % number) for number in range(200)}
    assert len(inodes) == 200
