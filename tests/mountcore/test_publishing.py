"""FLUSH seals, RELEASE publishes, and what keeps a version from being published."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from mountcore.kernel import Process, Rig, errno_of, eventually, other_process

from hcfs.filesystem.handles.version_handle import VersionHandle
from hcfs.filesystem.operations.attribute_changes import Changes

W = os.O_WRONLY | os.O_CREAT


def handle_of(process: Process, number: int) -> VersionHandle:
    handle = process.fs.handles.get(number)
    assert isinstance(handle, VersionHandle)
    return handle


def test_each_close_flushes_and_the_last_one_publishes(me: Process, other: Process) -> None:
    """A shell redirection: two programs write to inherited descriptors, each closing its own."""
    handle = me.open(b"f", W)
    me.flush(handle)
    me.write(handle, b"a\n")
    me.flush(handle)
    me.write(handle, b"b\n", 2)
    me.flush(handle)
    assert not other.exists(b"f")
    me.fs.release(handle)
    assert other.load(b"f") == b"a\nb\n"


def test_closed_without_a_write_it_is_empty(me: Process, other: Process) -> None:
    me.close(me.open(b"f", W))
    assert other.load(b"f") == b""


def test_written_after_the_last_flush(me: Process, other: Process) -> None:
    """Through a mapping: RELEASE doesn't wait, and publishes a little later."""
    handle = me.open(b"f", W)
    me.write(handle, b"before")
    me.flush(handle)
    me.write(handle, b"after!")
    me.fs.release(handle)
    eventually(lambda: other.exists(b"f"), "published in the background")
    assert other.load(b"f") == b"after!"


def test_a_close_beside_a_write_waits_for_nothing(me: Process, other: Process) -> None:
    """A process that is forked while its thread writes closes what it inherited. That isn't the last close, so it seals
    nothing; the last one does."""
    handle = me.open(b"f.tmp", W)
    me.write(handle, b"first ")
    version = handle_of(me, handle).version
    with me.fs.parts.publisher.change(version):
        assert me.fs.flush(handle) is None
        assert not version.flushed
    me.write(handle, b"second", 6)
    me.flush(handle)
    assert version.flushed
    me.rename(b"f.tmp", b"f")
    assert other.load(b"f") == b"first second"
    me.fs.release(handle)


def test_a_rename_publishes_what_was_flushed(me: Process, other: Process) -> None:
    handle = me.open(b"f", W)
    me.write(handle, b"whole")
    me.flush(handle)
    me.rename(b"f", b"g")
    assert other.load(b"g") == b"whole"
    assert not me.exists(b"f")
    assert errno_of(me.fs.write, handle, 0, b"late") == "EIO"
    assert errno_of(me.fs.setattr, me.lookup(b"g").ino, Changes(size=1), handle, me.caller) == "EIO"
    assert me.read(handle) == b"whole"
    me.close(handle)
    assert other.load(b"g") == b"whole"


def test_a_rename_of_what_is_still_written_moves_its_name_only(me: Process, other: Process) -> None:
    old = me.put(b"g", b"old")
    handle = me.open(b"f", W)
    me.write(handle, b"half")
    me.rename(b"f", b"g")
    assert other.lookup(b"g").ino == old
    assert (me.exists(b"f"), me.stat(b"g").size) == (False, 4)
    me.write(handle, b" and half", 4)
    me.close(handle)
    assert other.load(b"g") == b"half and half"


def test_fsync_is_no_flush(me: Process, other: Process) -> None:
    """A log that is rotated and written on stays its writer's."""
    handle = me.open(b"log", W)
    me.write(handle, b"one")
    me.fs.fsync(handle)
    me.rename(b"log", b"log.1")
    assert not other.exists(b"log.1")
    me.write(handle, b"two", 3)
    me.close(handle)
    assert other.load(b"log.1") == b"onetwo"


def test_links(me: Process, other: Process) -> None:
    handle = me.open(b"f.tmp", W)
    me.write(handle, b"whole")
    assert errno_of(me.link, b"f.tmp", b"f") == "EPERM"
    me.close(handle)
    assert me.link(b"f.tmp", b"f").attributes.nlink == 2  # type: ignore[union-attr]
    assert other.load(b"f") == b"whole"
    assert errno_of(me.link, b"f.tmp", b"f") == "EEXIST"
    me.unlink(b"f.tmp")
    assert (other.load(b"f"), other.stat(b"f").nlink) == (b"whole", 1)
    me.put(b"g.tmp", b"second")
    assert errno_of(me.link, b"g.tmp", b"f") == "EEXIST"
    assert other.load(b"f") == b"whole"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_a_killed_writer_publishes_nothing(rig: Rig, me: Process, number: int) -> None:
    me.put(b"f", b"old")
    with other_process() as process:
        writer = rig.proc(process.pid)
        handles = [writer.open(name, W) for name in (b"f", b"new", b"x.tmp")]
        for handle in handles:
            writer.write(handle, bytes(100_000))
        process.send_signal(number)
        eventually(lambda: Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "Z", "dead, not reaped")
        for handle in handles:
            assert errno_of(writer.flush, handle) == "EIO"
            assert errno_of(writer.write, handle, b"more") == "EIO"
            assert errno_of(writer.read, handle) == "EIO"
            writer.fs.release(handle)
    assert (me.load(b"f"), me.exists(b"new"), me.exists(b"x.tmp")) == (b"old", False, False)
    usage = rig.store.usage()
    assert (usage.staged, usage.staged_objects, rig.fs.volume.counts.abandoned) == (0, 0, 3)


def full(rig: Rig, me: Process) -> int:
    """Fill the store with a version, until a write is refused; the handle."""
    handle = me.open(b"big.tmp", W)
    size = rig.store.usage().capacity
    assert "ENOSPC" in {errno_of(me.write, handle, bytes(1 << 20), at) for at in range(0, size + 1, 1 << 20)}
    return handle


def test_a_failed_write_is_never_published(rig: Rig, me: Process) -> None:
    """fs_native ignores what close() says: its rename must say it again."""
    handle = full(rig, me)
    assert rig.store.usage().staged == 0, "the space is free at once"
    assert errno_of(me.write, handle, b"x") == "ENOSPC"
    assert errno_of(me.flush, handle) == "ENOSPC"
    me.fs.release(handle)
    assert errno_of(me.rename, b"big.tmp", b"big") == "ENOSPC"
    assert not me.exists(b"big")
    me.put(b"big.tmp", b"smaller")
    me.rename(b"big.tmp", b"big")
    assert me.load(b"big") == b"smaller"


def test_a_failed_leftover_goes_by_unlink_and_by_time(rig: Rig, me: Process) -> None:
    me.fs.release(full(rig, me))
    me.unlink(b"big.tmp")
    assert not me.exists(b"big.tmp")
    me.fs.release(full(rig, me))
    rig.now += 601
    assert rig.fs.parts.housekeeping.reap() == 1
    assert not me.exists(b"big.tmp")


def test_an_unlinked_version_goes_on_for_its_handles(rig: Rig, me: Process, other: Process) -> None:
    handle = me.open(b"f", os.O_RDWR | os.O_CREAT)
    me.write(handle, b"hello")
    ino = me.lookup(b"f").ino
    me.unlink(b"f")
    assert not me.exists(b"f")
    me.write(handle, b" world", 5)
    assert me.read(handle) == b"hello world"
    assert me.fs.getattr(ino).attributes.nlink == 0  # type: ignore[union-attr]
    me.close(handle)
    assert not other.exists(b"f")
    assert rig.store.usage().staged == 0


def test_unlink_removes_what_the_caller_sees(me: Process, other: Process) -> None:
    me.put(b"f", b"old")
    handle = me.open(b"f", os.O_RDWR)
    me.write(handle, b"new")
    me.unlink(b"f")
    assert (me.exists(b"f"), other.exists(b"f")) == (False, False)
    me.close(handle)
    assert not other.exists(b"f")


def test_nothing_staged_outlives_a_crash(rig: Rig, me: Process) -> None:
    me.put(b"kept", b"kept")
    rig.store.commit()
    me.put(b"waiting.tmp", b"x")
    me.write(me.open(b"open", W), bytes(200_000))
    me.write(me.open(b"kept", os.O_WRONLY), b"lost")
    after = rig.crash()
    client = after.proc()
    assert sorted(client.list()) == [b"kept"]
    assert client.load(b"kept") == b"kept"
    usage = after.store.usage()
    assert (usage.staged, usage.used) == (0, 4096)
    after.fs.close()
