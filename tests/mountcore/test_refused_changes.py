"""Calls that are refused, or come to nothing, and leave what was there."""

from __future__ import annotations

import logging
import os

import pytest
from mountcore.kernel import Process, Rig, errno_of

from hcfs.filesystem.calls import finish
from hcfs.filesystem.operations.attribute_changes import Changes
from hcfs.store import Staged

W = os.O_RDWR | os.O_CREAT
TOO_LARGE = 1 << 60


@pytest.mark.parametrize("name", [b"f", b"f.tmp", b"f.lock"])
def test_too_large_a_file_is_refused_and_keeps_what_it_has(me: Process, other: Process, name: bytes) -> None:
    """As on ext4: EFBIG costs the call, and not the file."""
    handle = me.open(name, W)
    me.write(handle, b"kept")
    ino = me.lookup(name).ino
    assert errno_of(me.fs.setattr, ino, Changes(size=TOO_LARGE), handle, me.caller) == "EFBIG"
    assert errno_of(me.fs.setattr, ino, Changes(size=TOO_LARGE), None, me.caller) == "EFBIG"
    assert errno_of(me.write, handle, b"beyond", TOO_LARGE) == "EFBIG"
    me.write(handle, b"!", 4)
    assert me.read(handle) == b"kept!"
    me.close(handle)
    if name == b"f.tmp":
        me.rename(name, b"f")
    assert other.load(b"f" if name == b"f.tmp" else name) == b"kept!"


def test_too_large_by_path(rig: Rig, me: Process) -> None:
    ino = me.put(b"f", b"kept")
    assert errno_of(me.fs.setattr, ino, Changes(size=TOO_LARGE), None, me.caller) == "EFBIG"
    assert me.load(b"f") == b"kept"
    assert not list(rig.fs.parts.versions)


def test_the_largest_size_is_possible(rig: Rig, me: Process) -> None:
    """It needs no room: what was never written is a hole."""
    handle = me.open(b"f", W)
    finish(me.fs.setattr(me.lookup(b"f").ino, Changes(size=rig.store.staging.max_object_bytes), handle, me.caller))
    larger = Changes(size=rig.store.staging.max_object_bytes + 1)
    assert errno_of(me.fs.setattr, me.lookup(b"f").ino, larger, handle, me.caller) == "EFBIG"
    assert me.stat(b"f").size == rig.store.staging.max_object_bytes


def test_an_open_that_never_came_keeps_no_directory(rig: Rig, me: Process, other: Process) -> None:
    """As by /proc/self/fd/N, which has no name by which the kernel could come back."""
    directory = me.fs.mkdir(rig.kv, b"d", 0o755, me.caller).ino
    ino = rig.store.create_empty(directory, b"f", 0o644, 0, 0)
    assert errno_of(me.fs.open, ino, os.O_WRONLY, me.caller) == "ESTALE"
    me.fs.unlink(directory, b"f", other.caller)
    me.fs.rmdir(rig.kv, b"d")
    assert not list(rig.fs.parts.versions)


def test_a_new_file_that_an_open_comes_back_for_keeps_its_directory(rig: Rig, me: Process, other: Process) -> None:
    directory = me.fs.mkdir(rig.kv, b"d", 0o755, me.caller).ino
    handle = me.fs.create(directory, b"f.tmp", 0o644, W, other.caller)[1].handle
    other.write(handle, b"waits")
    other.close(handle)
    ino = me.fs.lookup(directory, b"f.tmp", me.caller).ino
    assert errno_of(me.fs.open, ino, os.O_WRONLY | os.O_TRUNC, me.caller) == "ESTALE"
    assert errno_of(me.fs.rmdir, rig.kv, b"d") == "ENOTEMPTY"


def test_a_file_that_is_removed_while_its_last_writes_are_sealed(
    me: Process, other: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of it was to be kept, so nobody is warned."""
    sealing = Staged.seal

    def seal_after_the_removal(staged: Staged) -> None:
        me.unlink(b"f")
        sealing(staged)

    handle = me.open(b"f", W)
    me.write(handle, b"before")
    me.flush(handle)
    me.write(handle, b"after!")
    monkeypatch.setattr(Staged, "seal", seal_after_the_removal)
    with caplog.at_level(logging.INFO):
        me.fs.release(handle)
        me.fs.close()
    assert not other.exists(b"f")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
