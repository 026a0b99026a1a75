"""The kernel repeats a walk once: what was replaced twice meanwhile must not come to the program as ESTALE."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from mountcore.kernel import Process, Rig, errno_of, other_process

from hcfs.filesystem.calls import finish
from hcfs.filesystem.operations.attribute_changes import Changes

READ, WRITE = os.O_RDONLY, os.O_WRONLY


@pytest.fixture
def rival(rig: Rig) -> Iterator[Process]:
    """A third process."""
    with other_process() as process:
        yield rig.proc(process.pid)


def replace(process: Process, data: bytes) -> None:
    """As publishers do."""
    process.put(b"name.tmp", data)
    process.rename(b"name.tmp", b"name")


def test_a_reader(rig: Rig, me: Process, other: Process) -> None:
    """It reads what the name led to when it was looked up the second time."""
    replace(me, b"first")
    first = other.lookup(b"name").ino
    replace(me, b"second")
    assert errno_of(other.fs.open, first, READ, other.caller) == "ESTALE"
    second = other.lookup(b"name").ino
    replace(me, b"third")
    handle = finish(other.fs.open(second, READ, other.caller)).handle
    assert other.read(handle) == b"second"
    other.close(handle)
    assert other.load(b"name") == b"third"
    rig.store.commit()
    assert rig.store.usage().pending == 0


def test_a_reader_that_never_comes_back(rig: Rig, me: Process, other: Process) -> None:
    replace(me, b"first")
    first = other.lookup(b"name").ino
    replace(me, b"second")
    assert errno_of(other.fs.open, first, READ, other.caller) == "ESTALE"
    other.lookup(b"name")
    replace(me, b"third")
    rig.store.commit()
    assert rig.store.usage().pending > 0
    rig.now += 10
    rig.fs.parts.housekeeping.reap()
    assert rig.store.usage().pending == 0


def test_a_reader_of_what_was_quarantined_meanwhile(rig: Rig, me: Process, other: Process) -> None:
    replace(me, b"first")
    first = other.lookup(b"name").ino
    replace(me, b"second")
    assert errno_of(other.fs.open, first, READ, other.caller) == "ESTALE"
    second = other.lookup(b"name").ino
    rig.store.quarantine(second, "for the test")
    assert errno_of(other.fs.open, second, READ, other.caller) == "ENOENT"


@pytest.mark.parametrize("gone", [False, True])
def test_a_writer(me: Process, other: Process, rival: Process, gone: bool) -> None:
    """Its second lookup finds its own version, also where the first open met a file that is gone."""
    replace(me, b"first")
    first = other.lookup(b"name").ino
    if gone:
        me.unlink(b"name")
    replace(me, b"second")
    assert errno_of(other.fs.open, first, WRITE, other.caller) == "ESTALE"
    version = other.lookup(b"name")
    assert version.attributes is not None
    assert version.attributes.state == "staged"
    replace(rival, b"third")
    handle = finish(other.fs.open(version.ino, WRITE, other.caller)).handle
    other.write(handle, b"MINE")
    other.close(handle)
    assert me.load(b"name") == b"MINEnd"


@pytest.mark.parametrize("flags", [WRITE, WRITE | os.O_TRUNC])
def test_a_creator_that_others_forestall_twice(me: Process, other: Process, flags: int) -> None:
    """Its second lookup found nothing, so the kernel creates; and by then the file is there again."""
    kv = me.rig.kv
    replace(me, b"first")
    first = other.lookup(b"name").ino
    me.unlink(b"name")
    assert errno_of(other.fs.open, first, WRITE, other.caller) == "ESTALE"
    assert other.lookup(b"name").ino == 0
    replace(me, b"second")
    entry, opened = other.fs.create(kv, b"name", 0o644, flags, other.caller)
    assert entry.attributes is not None
    other.write(opened.handle, b"X")
    assert me.load(b"name") == b"second"
    other.close(opened.handle)
    assert me.load(b"name") == (b"X" if flags & os.O_TRUNC else b"Xecond")


def test_a_creator_without_permission_is_sent_back(me: Process, other: Process) -> None:
    """The kernel checks files that exist, and not what it creates."""
    kv = me.rig.kv
    replace(me, b"first")
    stranger = other.caller._replace(uid=1000, gid=1000)
    for _ in range(2):
        assert errno_of(other.fs.create, kv, b"name", 0o644, WRITE, stranger) == "ESTALE"


def test_a_truncation_by_path(me: Process, other: Process) -> None:
    replace(me, b"first")
    first = other.lookup(b"name").ino
    replace(me, b"second")
    assert errno_of(other.fs.setattr, first, Changes(size=2), None, other.caller) == "ESTALE"
    version = other.lookup(b"name").ino
    replace(me, b"third")
    finish(other.fs.setattr(version, Changes(size=2), None, other.caller))
    assert me.load(b"name") == b"se"


def test_what_is_kept_is_for_that_call_alone(me: Process, other: Process) -> None:
    """A writer that was sent back, and then opened its file, looks other files up as everybody does."""
    me.put(b"another", b"one")
    replace(me, b"first")
    handle = other.open(b"name", WRITE)
    assert other.stat(b"another").state == "committed"
    other.close(handle)


def test_a_writer_of_a_hard_link_whose_name_moved_away(rig: Rig, me: Process, other: Process) -> None:
    """The version that was made for it waits for a name. The other names go on meaning what everybody sees, also to its
    process: found by tests/model/test_schedules.py."""
    me.put(b"name", b"old")
    ino = me.link(b"name", b"link").ino
    assert errno_of(rig.fs.open, ino, WRITE, me.caller) == "ESTALE"
    other.rename(b"name", b"moved")
    handle = me.open(b"name", WRITE | os.O_CREAT)
    me.write(handle, b"mine")
    me.close(handle)
    assert me.load(b"moved") == b"old"
    other.put(b"moved", b"new")
    assert me.load(b"moved") == b"new"
    assert (me.load(b"name"), me.load(b"link")) == (b"mine", b"old")


def test_a_writer_of_a_file_that_moved_away(rig: Rig, me: Process, other: Process) -> None:
    """The same with one name: the version is made under the new one, and its process doesn't see it there."""
    ino = me.put(b"name", b"old")
    other.rename(b"name", b"moved")
    assert errno_of(rig.fs.open, ino, WRITE, me.caller) == "ESTALE"
    handle = me.open(b"name", WRITE | os.O_CREAT)
    me.write(handle, b"mine")
    me.close(handle)
    other.put(b"moved", b"new")
    assert (me.load(b"moved"), me.load(b"name")) == (b"new", b"mine")
    other.unlink(b"moved")
    assert not me.exists(b"moved")
    assert me.list().keys() == {b"name"}


def test_a_promise_that_was_not_kept_is_no_base(rig: Rig, me: Process, other: Process) -> None:
    """What an earlier open was promised is a view of what the name meant then."""
    ino = me.put(b"name", b"old")
    other.rename(b"name", b"moved")
    assert errno_of(rig.fs.open, ino, WRITE, me.caller) == "ESTALE"
    assert not me.exists(b"name")
    rig.fs.parts.retries.end(me.caller.thread)
    other.put(b"moved", b"newer")
    handle = me.open(b"moved", os.O_RDWR)
    assert me.read(handle) == b"newer"
    me.close(handle)
    assert errno_of(rig.fs.open, me.lookup(b"moved").ino, WRITE, me.caller) == "ESTALE"
    rig.fs.parts.retries.end(me.caller.thread)
    other.unlink(b"moved")
    handle = me.open(b"moved", os.O_RDWR | os.O_CREAT)
    assert me.read(handle) == b""
    me.close(handle)
