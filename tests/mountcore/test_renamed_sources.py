"""After a rename the old name is gone, whatever lay under the version that had it."""

from __future__ import annotations

import os

import pytest
from mountcore.kernel import Process, Rig


@pytest.mark.parametrize("target", [b"name", b"other.tmp"])
def test_a_published_file_under_a_waiting_version(rig: Rig, me: Process, other: Process, target: bytes) -> None:
    """A publisher that links was killed before it removed its temporary name; the next one renames."""
    me.put(b"name.tmp", b"old")
    me.link(b"name.tmp", b"linked")
    me.put(b"name.tmp", b"new")
    assert me.load(b"name.tmp") == b"new"
    me.rename(b"name.tmp", target)
    assert not me.exists(b"name.tmp")
    assert not other.exists(b"name.tmp")
    assert me.load(target) == b"new"
    assert other.load(b"linked") == b"old"


def test_a_published_file_under_a_version_that_was_flushed(me: Process, other: Process) -> None:
    """Its writer still has it open, and has written nothing since."""
    me.put(b"name", b"old")
    handle = me.open(b"name", os.O_WRONLY)
    me.write(handle, b"new")
    me.flush(handle)
    me.rename(b"name", b"renamed")
    assert other.load(b"renamed") == b"new"
    assert not other.exists(b"name")
    me.close(handle)


def test_a_version_that_is_being_written_leaves_the_published_file(me: Process, other: Process) -> None:
    """What is renamed isn't there for others yet, and what they have they keep."""
    me.put(b"name", b"old")
    handle = me.open(b"name", os.O_WRONLY)
    me.write(handle, b"new")
    me.rename(b"name", b"renamed")
    assert other.load(b"name") == b"old"
    me.close(handle)
    assert other.load(b"name") == b"old"
    assert other.load(b"renamed") == b"new"
