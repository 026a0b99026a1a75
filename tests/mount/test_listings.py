"""What a listing teaches the kernel about names that change while it is under way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.harness.actors import Actor, store


def test_a_name_that_left_during_a_listing_is_absent(kv: Path) -> None:
    """The directory was opened before the rename and is read after it, which mustn't bring the old name back."""
    store(kv / "old", b"object")
    with os.scandir(kv) as entries:
        os.rename(kv / "old", kv / "new")
        assert "old" not in [entry.name for entry in entries]
    with pytest.raises(FileNotFoundError):
        os.stat(kv / "old")
    with pytest.raises(FileNotFoundError):
        (kv / "old").read_bytes()
    assert (kv / "new").read_bytes() == b"object"


def test_a_name_that_was_replaced_during_a_listing_leads_to_the_new_object(kv: Path) -> None:
    """The old object goes on under another name, so asking for it isn't enough."""
    store(kv / "name", b"old")
    with os.scandir(kv) as entries:
        os.rename(kv / "name", kv / "aside")
        store(kv / "name.tmp", b"new content")
        os.rename(kv / "name.tmp", kv / "name")
        assert {entry.name: entry.inode() for entry in entries}["name"] == os.stat(kv / "name").st_ino
    assert os.stat(kv / "name").st_size == len(b"new content")
    assert (kv / "name").read_bytes() == b"new content"


def test_a_version_that_began_during_a_listing_keeps_its_name_uncached(kv: Path) -> None:
    """The kernel may not answer the writer from what it learned about the committed object."""
    store(kv / "name", b"old")
    with Actor() as writer, os.scandir(kv) as entries:
        fd = writer.open(kv / "name", os.O_WRONLY)
        writer.pwrite(fd, b"longer than before", 0)
        assert [entry.name for entry in entries] == ["name"]
        assert writer.stat(kv / "name").st_size == len(b"longer than before")
        assert os.stat(kv / "name").st_size == len(b"old")
        writer.close(fd)
