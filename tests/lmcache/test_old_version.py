"""LMCache 0.5.5: its adapter has object groups already, its native client not yet.

So the client takes the group for the hash and an unsalted hash for the salt, which gives the same file name; a salted
key has one field too many for it, and every operation on one fails on every file system.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hcfs.lmcache.keys import ChunkName, parse_name
from lab.harness.lmcache.driver import MIB, Chunk, Client, Worker, make_chunks, make_key


@pytest.mark.parametrize("kind", ["client", "adapter"])
@pytest.mark.parametrize("direct", [False, True], ids=["buffered", "direct"])
@pytest.mark.parametrize("tmp", ["", "tmp"])
def test_store_exists_load_delete(old_worker: Worker, kind: str, base: Path, direct: bool, tmp: str) -> None:
    chunks = [*make_chunks(6, 2 * MIB), *make_chunks(2, 8192, first=6)]
    with Client(old_worker, kind, base, direct=direct, tmp=tmp) as client:
        assert client.exists(chunks) == [False] * 8
        client.store(chunks)
        assert client.exists(chunks) == [True] * 8
        assert client.load(chunks) == [0] * 8
        assert client.load(chunks[:6], length=2 * MIB + 4096) == [None] * 6
        client.delete(chunks[:4])
        assert client.exists(chunks) == [False] * 4 + [True] * 4
        client.store(chunks)
        assert client.load(chunks) == [0] * 8
    assert {name for name in os.listdir(base) if name.endswith(".data")} == {chunk.name for chunk in chunks}


@pytest.mark.parametrize("direct", [False, True], ids=["buffered", "direct"])
def test_keys_without_a_group(old_worker: Worker, base: Path, direct: bool) -> None:
    """The shape that versions before object groups wrote, salted and not."""
    chunks = [Chunk(make_key(1, group=None, salt=salt), MIB, version) for version, salt in enumerate(["", "a", "b"])]
    with Client(old_worker, "client", base, direct=direct) as client:
        client.store(chunks)
        assert [client.load([chunk], versions=range(3)) for chunk in chunks] == [[0], [1], [2]]
    found = [parse_name(name) for name in os.listdir(base)]
    assert {name.key for name in found if isinstance(name, ChunkName)} == {chunk.key for chunk in chunks}


def test_both_versions_share_what_they_store(old_worker: Worker, worker: Worker, base: Path) -> None:
    chunks = make_chunks(8, MIB)
    with Client(old_worker, "adapter", base) as old, Client(worker, "adapter", base, direct=True) as new:
        old.store(chunks[:4])
        new.store(chunks[4:])
        assert old.load(chunks) == [0] * 8
        assert new.load(chunks) == [0] * 8


def test_salted_keys_fail_in_the_client_itself(old_worker: Worker, base: Path) -> None:
    with Client(old_worker, "client", base) as client:
        ok, error = client.try_store(make_chunks(1, 4096, salt="tenant"))
        assert not ok
        assert "malformed key" in error
    assert os.listdir(base) == []
