"""Calls on a handle beside the rename that publishes what it has open: found by tests/model/test_schedules.py."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from contextlib import suppress

import pytest
from mountcore.kernel import Process, Rig
from store.rig import in_thread

from hcfs.filesystem.versions.version import Version
from hcfs.store import Pin, Staged
from hcfs.store.errors import StagedFailed


@pytest.fixture
def handle(me: Process) -> int:
    handle = me.open(b"f.tmp", os.O_RDWR | os.O_CREAT)
    me.write(handle, b"content")
    me.flush(handle)
    return handle


def test_a_sync_of_what_is_just_being_renamed(
    rig: Rig, me: Process, handle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has nothing left to seal, and that is no failure: whoever has the file open goes on reading it."""
    seal = Staged.seal

    def after_the_rename(staged: Staged) -> None:
        me.rename(b"f.tmp", b"f")
        seal(staged)

    monkeypatch.setattr(Staged, "seal", after_the_rename)
    rig.fs.fsync(handle)
    assert me.read(handle) == me.load(b"f") == b"content"
    me.close(handle)
    assert rig.fs.volume.counts.abandoned == 0


def test_a_read_while_the_rename_publishes(rig: Rig, me: Process, handle: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the end of what is staged and the pin of what is published."""
    read, pin = Staged.read, rig.store.pin
    refused, reading = threading.Event(), list[Future[bytes]]()

    def read_and_tell(staged: Staged, offset: int, length: int) -> memoryview:
        try:
            return read(staged, offset, length)
        except StagedFailed:
            refused.set()
            raise

    def pin_later(oid: int) -> Pin:
        if not reading:
            reading.append(in_thread(lambda: me.read(handle)))
            assert refused.wait(60)
            with suppress(TimeoutError):
                reading[0].result(0.1)
        return pin(oid)

    monkeypatch.setattr(Staged, "read", read_and_tell)
    monkeypatch.setattr(rig.store, "pin", pin_later)
    me.rename(b"f.tmp", b"f")
    assert reading[0].result(60) == b"content"
    me.close(handle)


def test_a_truncate_whose_file_is_removed_as_soon_as_it_is_published(
    rig: Rig, me: Process, other: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was done, and says so."""
    me.put(b"f", b"content")
    let_go = rig.fs.parts.closings.let_go

    def after_the_removal(version: Version, *, writer: bool) -> None:
        assert other.stat(b"f").size == 3
        other.unlink(b"f")
        let_go(version, writer=writer)

    monkeypatch.setattr(rig.fs.parts.closings, "let_go", after_the_removal)
    me.truncate(b"f", 3)
    assert not me.exists(b"f")
