"""One bit flipped on the medium: a miss for that chunk alone, `exists` says no from then on, a new store heals it."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from content import content
from driver import MIB, Chunk, Client, Worker, make_chunks
from harness.cli import hcfs
from harness.mounts import Mount
from medium import flip, locate

LENGTH = 2 * MIB + 4096
LOGGED = (r"checksum", r"quarantine")
PLACES = {"first-byte": 0, "middle": MIB + 123457, "last-byte": LENGTH - 1}


@pytest.fixture(params=["client", "adapter"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[False, True], ids=["image", "loop"])
def mount(request: pytest.FixtureRequest, make_mount: Callable[..., Mount]) -> Mount:
    mount = make_mount(loop=request.param, allow_warnings=LOGGED)
    mount.ns("kv")
    return mount


def damage(mount: Mount, chunk: Chunk, at: int, *, remount: bool = False, namespace: str = "kv") -> None:
    """Flip a bit of byte `at` of a stored chunk, behind the daemon's back or between two mounts."""
    path = mount.ns(namespace) / chunk.name
    expected = content(chunk.name, chunk.version, chunk.length)[at]
    offset = locate(path, at)
    if remount:
        mount.umount()
    flip(mount.source, offset, expected)
    if remount:
        mount.mount()


def check_missing_and_healed(mount: Mount, client: Client, chunks: list[Chunk], bad: int) -> None:
    others = [number != bad for number in range(len(chunks))]
    before = mount.status()
    loaded = client.load(chunks)
    assert loaded == [0 if good else None for good in others]
    assert "Input/output error" in client.worker.said().splitlines()[-1]
    assert client.exists(chunks) == others
    assert chunks[bad].name not in os.listdir(client.base)
    assert client.load(chunks) == loaded
    after = mount.status()
    assert after["quarantined_objects"] == 1
    assert after["counters"]["checksum_errors"] == before["counters"]["checksum_errors"] + 1
    client.store(chunks)
    assert client.exists(chunks) == [True] * len(chunks)
    assert client.load(chunks) == [0] * len(chunks)


@pytest.mark.parametrize("direct", [False, True], ids=["buffered", "direct"])
@pytest.mark.parametrize("at", PLACES.values(), ids=PLACES)
def test_after_a_remount(worker: Worker, mount: Mount, kind: str, direct: bool, at: int) -> None:
    chunks = make_chunks(6, LENGTH)
    with Client(worker, kind, mount.ns("kv"), direct=direct) as client:
        client.store(chunks)
    damage(mount, chunks[3], at, remount=True)
    with Client(worker, kind, mount.ns("kv"), direct=direct) as client:
        assert client.exists(chunks) == [True] * 6
        check_missing_and_healed(mount, client, chunks, 3)
    mount.umount()
    mount.mount()
    with Client(worker, kind, mount.ns("kv"), direct=direct) as client:
        assert client.load(chunks) == [0] * 6


@pytest.mark.parametrize("at", PLACES.values(), ids=PLACES)
def test_while_mounted_with_direct_reads(worker: Worker, mount: Mount, kind: str, at: int) -> None:
    chunks = make_chunks(6, LENGTH)
    with Client(worker, kind, mount.ns("kv"), direct=True) as client:
        client.store(chunks)
        assert client.load(chunks) == [0] * 6
        damage(mount, chunks[0], at)
        check_missing_and_healed(mount, client, chunks, 0)


def test_after_a_buffered_store_only_direct_reads_and_remounts_see_it(worker: Worker, mount: Mount) -> None:
    """The kernel's cache still has the writer's pages, and they are right."""
    chunks = make_chunks(3, LENGTH)
    with Client(worker, "client", mount.ns("kv")) as buffered:
        buffered.store(chunks)
        damage(mount, chunks[1], MIB)
        assert buffered.load(chunks) == [0] * 3
    with Client(worker, "client", mount.ns("kv"), direct=True) as direct:
        check_missing_and_healed(mount, direct, chunks, 1)


def test_every_process_sees_the_miss(worker: Worker, make_worker: Callable[[], Worker], mount: Mount) -> None:
    chunks = make_chunks(4, LENGTH)
    other = make_worker()
    kv = mount.ns("kv")
    with Client(worker, "client", kv, direct=True) as one, Client(other, "client", kv, direct=True) as two:
        one.store(chunks)
        assert two.exists(chunks) == [True] * 4
        damage(mount, chunks[2], 4096)
        assert one.load(chunks) == [0, 0, None, 0]
        assert two.exists(chunks) == [True, True, False, True]
        assert two.load(chunks) == [0, 0, None, 0]
        two.store(chunks[2:3])
        assert one.load(chunks) == [0] * 4


@pytest.mark.parametrize("direct", [False, True], ids=["buffered", "direct"])
def test_a_part_that_is_whole_is_loaded_from_a_damaged_chunk_once(worker: Worker, mount: Mount, direct: bool) -> None:
    """Verified piece by piece: what is asked for and verifies is a hit, until somebody meets the damage."""
    chunks = make_chunks(2, LENGTH)
    with Client(worker, "client", mount.ns("kv"), direct=direct) as client:
        client.store(chunks)
    damage(mount, chunks[0], LENGTH - 1, remount=True)
    with Client(worker, "client", mount.ns("kv"), direct=direct) as client:
        assert client.load(chunks, length=4096) == [0, 0]
        assert client.load(chunks) == [None, 0]
        assert client.load(chunks, length=4096) == [None, 0]


def test_with_verify_open_it_is_no_file_at_all(worker: Worker, make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(allow_warnings=LOGGED)
    hcfs("ns", "create", mount.dir, "strict", "--verify", "open")
    chunks = make_chunks(4, LENGTH)
    with Client(worker, "client", mount.ns("strict"), direct=True) as client:
        client.store(chunks)
        damage(mount, chunks[1], LENGTH - 1, namespace="strict")
        assert client.load(chunks, length=4096) == [0, None, 0, 0]
        assert "No such file or directory" in worker.said().splitlines()[-1]
        assert client.exists(chunks) == [True, False, True, True]
        client.store(chunks)
        assert client.load(chunks) == [0] * 4


def test_all_damaged_at_once(worker: Worker, mount: Mount) -> None:
    chunks = make_chunks(8, LENGTH)
    with Client(worker, "client", mount.ns("kv"), direct=True) as client:
        client.store(chunks)
        for number, chunk in enumerate(chunks):
            damage(mount, chunk, number * 4097)
        assert client.load(chunks) == [None] * 8
        assert client.exists(chunks) == [False] * 8
        assert os.listdir(mount.ns("kv")) == []
        assert mount.status()["quarantined_objects"] == 8
        client.store(chunks)
        assert client.load(chunks) == [0] * 8
