"""Staging names: versions that wait for their rename; and lock files, which are never staged."""

from __future__ import annotations

import os

import pytest
from mountcore.kernel import Process, Rig, errno_of, other_process

W = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def test_it_waits_whole_for_its_rename(rig: Rig, me: Process, other: Process) -> None:
    me.put(b"f.tmp", b"content")
    assert b"f.tmp" not in me.list()
    assert other.load(b"f.tmp") == b"content", "most recently closed, of another process"
    assert other.lookup(b"f.tmp").entry_timeout == 0
    other.rename(b"f.tmp", b"f")
    assert me.load(b"f") == b"content"
    assert not me.exists(b"f.tmp")


def test_own_before_others_before_committed(me: Process, other: Process) -> None:
    me.put(b"x", b"committed")
    me.rename(b"x", b"x.tmp")
    assert b"x.tmp" in other.list()
    me.put(b"x.tmp", b"mine")
    other.put(b"x.tmp", b"his")
    assert (me.load(b"x.tmp"), other.load(b"x.tmp")) == (b"mine", b"his")
    with other_process() as third:
        assert me.rig.proc(third.pid).load(b"x.tmp") == b"his"
    other.unlink(b"x.tmp")
    assert (other.load(b"x.tmp"), me.load(b"x.tmp")) == (b"mine", b"mine")


def test_two_servers_on_one_temporary_name(me: Process, other: Process) -> None:
    """Each renames its own, whole; the later rename wins."""
    mine, his = me.open(b"k.tmp", W), other.open(b"k.tmp", W)
    me.write(mine, b"m" * 100_000)
    other.write(his, b"h" * 50_000)
    me.close(mine)
    other.close(his)
    me.rename(b"k.tmp", b"k")
    assert other.load(b"k") == b"m" * 100_000
    other.rename(b"k.tmp", b"k")
    assert me.load(b"k") == b"h" * 50_000


def test_it_is_reclaimed_after_a_while_but_never_while_it_is_written(rig: Rig, me: Process) -> None:
    handle = me.open(b"slow.tmp", W)
    me.write(handle, bytes(10_000))
    me.put(b"old.tmp", bytes(10_000))
    rig.now += 599
    assert rig.fs.parts.housekeeping.reap() == 0
    rig.now += 2
    assert rig.fs.parts.housekeeping.reap() == 1
    assert (me.exists(b"old.tmp"), me.exists(b"slow.tmp")) == (False, True)
    rig.now += 10_000
    assert rig.fs.parts.housekeeping.reap() == 0
    me.close(handle)
    me.rename(b"slow.tmp", b"slow")
    assert len(me.load(b"slow")) == 10_000


def test_appending_to_what_another_process_left(me: Process, other: Process) -> None:
    """A script's steps, each a process of its own."""
    me.put(b"f.tmp", b"one")
    handle = other.open(b"f.tmp", os.O_WRONLY | os.O_APPEND)
    other.write(handle, b"two", 3)
    other.close(handle)
    me.rename(b"f.tmp", b"f")
    assert me.load(b"f") == b"onetwo"
    assert not me.exists(b"f.tmp")


def test_leftovers_of_ended_processes_go_with_the_name(rig: Rig, me: Process) -> None:
    with other_process() as process:
        rig.proc(process.pid).put(b"f.tmp", b"leftover")
    assert me.load(b"f.tmp") == b"leftover"
    me.put(b"f.tmp", b"mine")
    me.rename(b"f.tmp", b"f")
    assert not me.exists(b"f.tmp")
    assert rig.store.usage().staged_objects == 0


def test_what_a_process_left_at_its_end_still_waits(rig: Rig, me: Process) -> None:
    """cp ends as it closes; mv comes after it."""
    with other_process() as process:
        cp = rig.proc(process.pid)
        handle = cp.open(b"f.tmp", W)
        cp.write(handle, b"copied")
        cp.flush(handle)
    cp.fs.release(handle)
    me.rename(b"f.tmp", b"f")
    assert me.load(b"f") == b"copied"


def test_patterns_are_a_namespaces_option(rig: Rig, me: Process, other: Process) -> None:
    rig.cache.namespaces.set_option(rig.kv, "staging_patterns", "*.incomplete,*.bin.tmp.*")
    me.put(b"a.incomplete", b"1")
    me.put(b"k.bin.tmp.12.34.abc", b"2")
    me.put(b"plain.tmp", b"3")
    assert sorted(other.list()) == [b"plain.tmp"]


def test_xattrs_survive_the_rename(me: Process, other: Process) -> None:
    handle = me.open(b"f.tmp", W)
    me.fs.setxattr(me.lookup(b"f.tmp").ino, b"user.vllm.meta", b"{}", me.caller)
    me.close(handle)
    me.rename(b"f.tmp", b"f")
    assert other.fs.getxattr(other.lookup(b"f").ino, b"user.vllm.meta") == b"{}"


def test_rmdir_takes_what_waits_along(rig: Rig, me: Process) -> None:
    directory = me.fs.mkdir(rig.kv, b"d", 0o755, me.caller).ino
    handle = me.open(b"f.tmp", W, parent=directory)
    assert errno_of(me.fs.rmdir, rig.kv, b"d") == "ENOTEMPTY"
    me.close(handle)
    me.fs.rmdir(rig.kv, b"d")
    assert rig.store.usage().staged_objects == 0


class TestLockFiles:
    """Names ending in .lock."""

    def test_created_at_once_and_shared(self, me: Process, other: Process) -> None:
        mine = me.open(b"m.lock", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        assert other.exists(b"m.lock")
        with pytest.raises(OSError, match="exists"):
            other.open(b"m.lock", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        his = other.open(b"m.lock", os.O_RDWR | os.O_CREAT)
        assert me.lookup(b"m.lock").ino == other.lookup(b"m.lock").ino
        me.write(mine, b"123")
        assert other.read(his) == b"123"
        assert other.stat(b"m.lock").size == 3
        other.write(his, b"45678")
        assert me.read(mine) == b"45678"
        me.close(mine)
        other.close(his)
        assert me.load(b"m.lock") == b"45678"

    def test_content_is_kept(self, rig: Rig, me: Process) -> None:
        me.put(b"m.lock", b"pid 1")
        me.truncate(b"m.lock", 3)
        assert me.load(b"m.lock") == b"pid"
        ino = me.put(b"m.lock", b"pid 22")
        rig.store.commit()
        after = rig.crash()
        assert after.proc().load(b"m.lock") == b"pid 22"
        assert after.proc().lookup(b"m.lock").ino == ino
        after.fs.close()

    def test_unlinked_while_it_is_held(self, rig: Rig, me: Process, other: Process) -> None:
        held = me.open(b"m.lock", os.O_RDWR | os.O_CREAT)
        me.write(held, b"first")
        me.flush(held)
        other.unlink(b"m.lock")
        fresh = other.open(b"m.lock", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        me.write(held, b"F")
        assert me.read(held) == b"First"
        assert other.read(fresh) == b""
        me.close(held)
        other.close(fresh)
        assert rig.store.usage().staged_objects == 0
        assert not len(rig.fs.parts.lock_files)

    def test_killed_writers_lose_nothing_of_theirs(self, rig: Rig, me: Process) -> None:
        """They are written in place, as on any filesystem."""
        with other_process() as process:
            writer = rig.proc(process.pid)
            handle = writer.open(b"m.lock", os.O_RDWR | os.O_CREAT)
            writer.write(handle, b"mine")
        writer.fs.release(handle)
        assert me.exists(b"m.lock")
