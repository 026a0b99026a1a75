"""Names ending in .lock are published at once and written in place: one inode for all processes."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.harness.actors import Actor, errno_of, eventually, load
from lab.harness.mounts import Mount

EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB


def test_creation_is_seen_at_once(kv: Path) -> None:
    """Before any close: listed, one inode for all, and O_EXCL fails elsewhere."""
    with Actor() as one, Actor() as two:
        fd = one.open(kv / "m.lock", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        assert os.listdir(kv) == ["m.lock"]
        assert two.stat(kv / "m.lock").st_ino == one.fstat(fd).st_ino
        assert errno_of(two.open, kv / "m.lock", os.O_RDWR | os.O_CREAT | os.O_EXCL) == "EEXIST"
        other = two.open(kv / "m.lock", os.O_RDWR | os.O_CREAT)
        assert two.fstat(other).st_ino == one.fstat(fd).st_ino


def test_written_in_place(kv: Path) -> None:
    """Writes, truncation and growth through any handle are one content, which every handle reads, without a close."""
    with Actor() as one, Actor() as two:
        a = one.open(kv / "m.lock", os.O_RDWR | os.O_CREAT)
        b = two.open(kv / "m.lock", os.O_RDWR | os.O_CREAT)
        inode = one.fstat(a).st_ino
        one.pwrite(a, b"12345\n", 0)
        assert two.pread(b, 100, 0) == b"12345\n"
        assert load(kv / "m.lock") == b"12345\n"
        two.pwrite(b, b"6", 5)
        assert one.pread(a, 100, 0) == b"123456"
        two.ftruncate(b, 0)
        assert one.fstat(a).st_size == 0
        assert one.pread(a, 100, 0) == b""
        one.pwrite(a, b"again", 2)
        assert two.pread(b, 100, 0) == b"\0\0again"
        one.close(a)
        two.close(b)
        eventually(lambda: load(kv / "m.lock") == b"\0\0again", "the content stays after the close")
        assert os.stat(kv / "m.lock").st_ino == inode
        c = two.open(kv / "m.lock", os.O_WRONLY | os.O_TRUNC)
        assert os.stat(kv / "m.lock").st_size == 0
        assert two.fstat(c).st_ino == inode


@pytest.mark.parametrize("kind", ["flock", "lockf"])
def test_advisory_locks_between_processes(kv: Path, kind: str) -> None:
    """One holder at a time; a waiter gets the lock when the holder unlocks, closes, or is killed."""
    with Actor() as one, Actor() as two, Actor() as three:
        handles = {actor: actor.open(kv / "m.lock", os.O_RDWR | os.O_CREAT) for actor in (one, two, three)}
        getattr(one, kind)(handles[one], EXCLUSIVE)
        for actor in (two, three):
            with pytest.raises(BlockingIOError) as refusal:
                getattr(actor, kind)(handles[actor], EXCLUSIVE)
            assert refusal.value.errno == errno.EAGAIN
        two.begin(kind, handles[two], fcntl.LOCK_EX)
        getattr(one, kind)(handles[one], fcntl.LOCK_UN)
        assert two.result() is None
        assert errno_of(getattr(one, kind), handles[one], EXCLUSIVE) == "EAGAIN"
        three.begin(kind, handles[three], fcntl.LOCK_EX)
        two.kill()
        assert three.result() is None
        one.begin(kind, handles[one], fcntl.LOCK_EX)
        three.close(handles[three])
        assert one.result() is None
    assert os.listdir(kv) == ["m.lock"]


def test_exclusive_creation_has_one_winner(kv: Path) -> None:
    """Eight processes race for O_CREAT|O_EXCL, twenty times."""
    actors = [Actor() for _ in range(8)]
    try:
        with ThreadPoolExecutor(8) as pool:
            for number in range(20):
                path = kv / f"{number}.lock"
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                outcomes = list(
                    pool.map(lambda actor, path=path, flags=flags: errno_of(actor.open, path, flags), actors)
                )
                assert sorted(outcomes) == ["EEXIST"] * 7 + ["ok"]
    finally:
        for actor in actors:
            actor.__exit__(None, None, None)


def test_a_killed_holder_leaves_the_file(kv: Path) -> None:
    """The lock is gone with the process; the lock file, no staged version, stays."""
    with Actor() as one, Actor() as two:
        fd = one.open(kv / "m.lock", os.O_RDWR | os.O_CREAT)
        one.write(fd, b"pid")
        one.flock(fd, EXCLUSIVE)
        one.kill()
        assert os.listdir(kv) == ["m.lock"]
        other = two.open(kv / "m.lock", os.O_RDWR)
        two.flock(other, EXCLUSIVE)


def test_unlinked_while_it_is_held(kv: Path) -> None:
    """The next creation is another inode; the holder's handle and lock go on."""
    with Actor() as one, Actor() as two:
        held = one.open(kv / "m.lock", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        one.flock(held, EXCLUSIVE)
        two.unlink(kv / "m.lock")
        fresh = two.open(kv / "m.lock", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        two.flock(fresh, EXCLUSIVE)
        assert two.fstat(fresh).st_ino != one.fstat(held).st_ino
        assert one.fstat(held).st_nlink == 0
        one.pwrite(held, b"still mine", 0)
        assert one.pread(held, 100, 0) == b"still mine"
        assert two.pread(fresh, 100, 0) == b""


def test_locks_on_other_names(kv: Path) -> None:
    """flock works on any committed object and on directories; that is the kernel's doing."""
    (kv / "object").write_bytes(b"x")
    eventually(lambda: os.listdir(kv) == ["object"], "published")
    with Actor() as one, Actor() as two:
        for path in (kv / "object", kv):
            first, second = one.open(path, os.O_RDONLY), two.open(path, os.O_RDONLY)
            one.flock(first, EXCLUSIVE)
            assert errno_of(two.flock, second, EXCLUSIVE) == "EAGAIN"
            one.close(first)
            two.flock(second, EXCLUSIVE)


@pytest.mark.parametrize("plane", ["on", "off"])
def test_what_was_written_is_durable_after_the_close(make_mount: Callable[..., Mount], plane: str) -> None:
    """Of the first writer and of later ones, by whichever handle, with the file's name; though the daemon is killed
    directly afterwards, and commits nothing by itself."""
    mount = make_mount(size="64M", options=f"commit_interval=3600,data_plane={plane}")
    kv = mount.ns()
    with Actor() as one, Actor() as two:

        def killed(content: bytes) -> None:
            mount.kill()
            mount.mount()
            assert load(kv / "m.lock") == content

        fd = one.open(kv / "m.lock", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        one.write(fd, b"pid 1\n")
        one.close(fd)
        killed(b"pid 1\n")
        fd = one.open(kv / "m.lock", os.O_WRONLY | os.O_TRUNC)
        other = two.open(kv / "m.lock", os.O_RDWR)
        one.write(fd, b"2")
        two.pwrite(other, b"3", 1)
        two.close(other)
        killed(b"23")
        assert errno_of(one.close, fd) == "ENOTCONN"  # its mount is gone
        fd = one.open(kv / "m.lock", os.O_WRONLY)
        one.write(fd, b"before")
        one.fsync(fd)
        killed(b"before")
        fd = one.open(kv / "m.lock", os.O_WRONLY | os.O_TRUNC)
        one.close(fd)
        killed(b"")
        one.kill()
        two.kill()


def test_closes_that_commit(make_mount: Callable[..., Mount]) -> None:
    """One a writer; locking alone, reading, and an unlinked file's closes cost none."""
    mount = make_mount(size="64M", options="commit_interval=3600")
    kv = mount.ns()

    def commits() -> int:
        return int(mount.status()["counters"]["group_commits"])

    with Actor() as one:
        before = commits()
        for _ in range(5):
            fd = one.open(kv / "empty.lock", os.O_RDWR | os.O_CREAT)
            one.flock(fd, EXCLUSIVE)
            one.close(fd)
            one.unlink(kv / "empty.lock")
        assert commits() == before
        for number in range(5):
            fd = one.open(kv / "pid.lock", os.O_RDWR | os.O_CREAT)
            one.pwrite(fd, b"%d" % number, 0)
            one.close(fd)
        assert commits() == before + 5
        fd = one.open(kv / "pid.lock", os.O_RDWR)
        one.unlink(kv / "pid.lock")
        one.pwrite(fd, b"6", 0)
        one.close(fd)
        assert commits() == before + 5
