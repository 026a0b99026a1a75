"""A process that is killed within open(2): the kernel gives the handle back as after a close, but no FLUSH came."""

from __future__ import annotations

import os

import pytest
from mountcore.kernel import Process, Rig


@pytest.mark.parametrize("name", [b"new", b"new.tmp"])
def test_a_create_that_never_returned_leaves_nothing(rig: Rig, me: Process, other: Process, name: bytes) -> None:
    rig.fs.release(me.open(name, os.O_WRONLY | os.O_CREAT))
    rig.fs.close()
    assert not me.exists(name)
    assert not other.exists(name)
    assert rig.store.usage().staged_objects == 0


def test_a_truncating_open_that_never_returned_leaves_the_old_content(rig: Rig, me: Process, other: Process) -> None:
    me.put(b"name", b"kept")
    rig.fs.release(me.open(b"name", os.O_WRONLY | os.O_TRUNC))
    rig.fs.close()
    assert me.load(b"name") == other.load(b"name") == b"kept"
    assert rig.store.usage().staged_objects == 0


def test_what_others_closed_before_is_published_all_the_same(rig: Rig, me: Process, other: Process) -> None:
    """The open that never returned has changed nothing."""
    handle = me.open(b"name", os.O_WRONLY | os.O_CREAT)
    me.write(handle, b"whole")
    late = me.open(b"name", os.O_WRONLY)
    me.close(handle)
    rig.fs.release(late)
    assert other.load(b"name") == b"whole"


def test_a_file_that_waits_for_its_rename_goes_on_waiting(rig: Rig, me: Process, other: Process) -> None:
    me.put(b"name.tmp", b"whole")
    rig.fs.release(me.open(b"name.tmp", os.O_WRONLY))
    me.rename(b"name.tmp", b"name")
    assert other.load(b"name") == b"whole"
