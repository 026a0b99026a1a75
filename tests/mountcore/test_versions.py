"""Versions: who sees which content of a name, and when."""

from __future__ import annotations

import errno
import os
import threading

import pytest
from mountcore.kernel import ENTRY_TIMEOUT, Process, Rig, errno_of, other_process

from hcfs.filesystem.operations.attribute_changes import Changes

RW = os.O_RDWR


def test_staged_is_a_miss(rig: Rig, me: Process, other: Process) -> None:
    handle = me.open(b"f", RW | os.O_CREAT)
    me.write(handle, b"hello")
    assert me.stat(b"f").size == 5
    assert me.lookup(b"f").entry_timeout == 0
    absent = other.lookup(b"f")
    assert (absent.ino, absent.entry_timeout) == (0, 0)
    me.close(handle)
    assert other.load(b"f") == b"hello"
    assert other.lookup(b"f").entry_timeout == ENTRY_TIMEOUT


def test_absent_names_are_kept_as_absent(me: Process) -> None:
    assert me.lookup(b"nothing")[2:] == (ENTRY_TIMEOUT, 0)


def test_a_write_open_makes_a_version_that_keeps_its_inode(me: Process, other: Process) -> None:
    old = me.put(b"f", b"old content")
    reader = other.open(b"f")
    handle = me.open(b"f", RW)
    new = me.lookup(b"f").ino
    assert new != old
    assert other.lookup(b"f").ino == old
    me.write(handle, b"NEW", 4)
    assert me.load(b"f") == b"old NEWtent"
    assert other.load(b"f") == b"old content"
    me.close(handle)
    assert other.lookup(b"f").ino == new
    assert other.load(b"f") == b"old NEWtent"
    assert other.read(reader) == b"old content"
    assert other.fs.getattr(old).attributes.nlink == 0  # type: ignore[union-attr]
    other.close(reader)
    # A walk to it may be under way: what it asks before it opens is answered, and the open is what sends it back.
    assert other.fs.getattr(old).attributes.nlink == 0  # type: ignore[union-attr]
    assert errno_of(other.fs.open, old, os.O_RDONLY, other.caller) == "ESTALE"


def test_open_of_an_inode_that_is_no_longer_current(me: Process) -> None:
    old = me.put(b"f", b"1")
    me.put(b"f", b"2")
    assert errno_of(me.fs.open, old, os.O_RDONLY, me.caller) == "ESTALE"


def test_truncating_open_starts_empty_and_keeps_mode_and_owner(rig: Rig, me: Process) -> None:
    him = rig.proc(uid=7, gid=8)
    him.close(him.open(b"f", os.O_WRONLY | os.O_CREAT, 0o640))
    me.put(b"f", b"x")
    found = me.stat(b"f")
    assert (found.mode & 0o7777, found.uid, found.gid, found.size) == (0o640, 7, 8, 1)


def test_unmodified_it_is_dropped_and_attributes_go_to_the_object(me: Process) -> None:
    ino = me.put(b"f", b"content")
    handle = me.open(b"f", RW)
    version = me.lookup(b"f").ino
    me.fs.setattr(version, Changes(mode=0o600, mtime_ns=123), None, me.caller)
    me.fs.setxattr(version, b"user.a", b"1", me.caller)
    me.close(handle)
    found = me.stat(b"f")
    assert (found.id, found.mode & 0o7777, found.mtime_ns) == (ino, 0o600, 123)
    assert me.fs.getxattr(ino, b"user.a") == b"1"
    assert me.load(b"f") == b"content"
    assert me.rig.store.usage().staged_objects == 0


def test_each_process_writes_its_own(me: Process, other: Process) -> None:
    mine, his = me.open(b"f", RW | os.O_CREAT), other.open(b"f", RW | os.O_CREAT)
    me.write(mine, b"mine")
    other.write(his, b"longer, and his")
    assert (me.load(b"f"), other.load(b"f")) == (b"mine", b"longer, and his")
    other.close(his)
    assert me.load(b"f") == b"mine"
    me.close(mine)
    assert other.load(b"f") == b"mine"


def test_handles_of_one_process_share_a_version(me: Process) -> None:
    first, second = me.open(b"f", RW | os.O_CREAT), me.open(b"f", RW)
    me.write(first, b"ab")
    me.write(second, b"cd", 2)
    me.close(first)
    assert me.read(second) == b"abcd"
    me.close(second)
    assert me.load(b"f") == b"abcd"


def test_threads_belong_to_their_process(rig: Rig, me: Process) -> None:
    handle = me.open(b"f", RW | os.O_CREAT)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(rig.proc(threading.get_native_id()).exists(b"f")))
    thread.start()
    thread.join()
    assert seen == [True]
    me.close(handle)


def test_exclusive_creation_of_what_another_process_is_writing(me: Process, other: Process) -> None:
    handle = me.open(b"f", RW | os.O_CREAT | os.O_EXCL)
    with pytest.raises(OSError, match="exists"):
        me.open(b"f", RW | os.O_CREAT | os.O_EXCL)
    with pytest.raises(OSError) as refused:
        other.open(b"f", RW | os.O_CREAT | os.O_EXCL)
    assert refused.value.errno == errno.EEXIST
    me.close(handle)


def test_creation_after_the_name_has_come_to_exist(rig: Rig, me: Process) -> None:
    me.put(b"f", b"1")
    assert errno_of(me.fs.create, rig.kv, b"f", 0o644, os.O_WRONLY, me.caller) == "ESTALE"
    assert errno_of(me.fs.create, rig.kv, b"f", 0o644, os.O_WRONLY | os.O_EXCL, me.caller) == "EEXIST"


def test_one_of_several_hard_links_separates(me: Process, other: Process) -> None:
    me.put(b"a", b"both")
    ino = me.link(b"a", b"b").ino
    handle = me.open(b"b", RW)
    me.write(handle, b"BOTH")
    assert (me.load(b"a"), me.load(b"b"), other.load(b"b")) == (b"both", b"BOTH", b"both")
    me.close(handle)
    assert (other.load(b"a"), other.load(b"b")) == (b"both", b"BOTH")
    assert other.stat(b"a").nlink == 1
    assert me.rig.notices.attributes == [ino]


def test_an_unopened_version_is_dropped_after_a_while(rig: Rig, me: Process) -> None:
    ino = me.put(b"f", b"1")
    assert errno_of(me.fs.open, ino, RW, me.caller) == "ESTALE"
    assert me.lookup(b"f").ino != ino
    assert rig.fs.parts.housekeeping.reap() == 0
    rig.now += 6
    assert rig.fs.parts.housekeeping.reap() == 1
    assert me.lookup(b"f").ino == ino
    assert rig.store.usage().staged_objects == 0


def test_a_client_that_cannot_be_seen(rig: Rig, unseen: Process, other: Process) -> None:
    """Each write handle is a version of its own, and nothing is shared."""
    first, second = unseen.open(b"f", RW | os.O_CREAT), unseen.open(b"f", RW | os.O_CREAT)
    assert not unseen.exists(b"f")
    unseen.write(first, b"first")
    unseen.write(second, b"second!")
    unseen.close(second)
    assert other.load(b"f") == b"second!"
    unseen.close(first)
    assert other.load(b"f") == b"first"
    third = unseen.open(b"f", RW)
    unseen.write(third, b"T")
    unseen.close(third)
    assert other.load(b"f") == b"Tirst"
    unseen.put(b"f.tmp", b"by name")
    unseen.rename(b"f.tmp", b"f")
    assert other.load(b"f") == b"by name"
    assert rig.fs.volume.pid_zero_seen


def test_truncate_by_path_is_published_within_the_call(me: Process, other: Process) -> None:
    me.put(b"f", b"0123456789")
    reader = other.open(b"f")
    me.truncate(b"f", 4)
    assert other.load(b"f") == b"0123"
    me.truncate(b"f", 6)
    assert other.load(b"f") == b"0123\0\0"
    assert other.read(reader) == b"0123456789"
    other.close(reader)
    assert me.rig.store.usage().staged_objects == 0


def test_truncate_by_path_beside_an_open_handle(me: Process, other: Process) -> None:
    handle = me.open(b"f", RW | os.O_CREAT)
    me.write(handle, b"0123456789")
    me.truncate(b"f", 4)
    assert not other.exists(b"f")
    me.close(handle)
    assert other.load(b"f") == b"0123"


def test_listings_show_own_versions(me: Process, other: Process) -> None:
    me.put(b"old", b"1")
    handles = [me.open(name, os.O_WRONLY | os.O_CREAT) for name in (b"old", b"new", b"x.tmp")]
    mine, his = me.list(), other.list()
    assert sorted(mine) == [b"new", b"old"]
    assert sorted(his) == [b"old"]
    assert mine[b"old"].ino != his[b"old"].ino
    assert his[b"old"].entry_timeout == mine[b"new"].entry_timeout == 0
    for handle in handles:
        me.close(handle)


def test_the_owner_may_have_ended(rig: Rig, me: Process) -> None:
    """A handle that a child inherited publishes when it is closed, if nobody was killed by a signal."""
    with other_process() as process:
        owner = rig.proc(process.pid)
        handle = owner.open(b"f", RW | os.O_CREAT)
        owner.write(handle, b"inherited")
        process.terminate()
        process.wait()
    owner.close(handle)
    assert me.load(b"f") == b"inherited"
