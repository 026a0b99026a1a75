"""One bit flipped on the medium: a miss for that chunk alone, `exists` says no from then on, a new store heals it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping

import pytest

from lab.harness.cli import hcfs
from lab.harness.lmcache.content import content
from lab.harness.lmcache.driver import MIB, Chunk, Client, Worker, make_chunks
from lab.harness.lmcache.medium import flip, locate
from lab.harness.mounts import Mount

LENGTH = 2 * MIB + 4096
LOGGED = (r"quarantine",)
PLACES = {1: 0, 3: MIB + 123457, 4: LENGTH - 1}
"""Which chunks are damaged, and at which byte: the first, one in the middle, the last."""


@pytest.fixture(params=[False, True], ids=["image", "loop"])
def mount(request: pytest.FixtureRequest, make_mount: Callable[..., Mount]) -> Mount:
    mount = make_mount(loop=request.param, allow_warnings=LOGGED)
    mount.ns("kv")
    return mount


@pytest.fixture
def image(make_mount: Callable[..., Mount]) -> Mount:
    mount = make_mount(allow_warnings=LOGGED)
    mount.ns("kv")
    return mount


def damage(mount: Mount, places: Mapping[Chunk, int], *, remount: bool = False, namespace: str = "kv") -> None:
    """Flip a bit of each of these bytes of stored chunks, behind the daemon's back or between two mounts."""
    offsets = {chunk: locate(mount.ns(namespace) / chunk.name, at) for chunk, at in places.items()}
    if remount:
        mount.umount()
    for chunk, at in places.items():
        flip(mount.source, offsets[chunk], content(chunk.name, chunk.version, chunk.length)[at])
    if remount:
        mount.mount()


def check_missing_and_healed(mount: Mount, client: Client, chunks: list[Chunk], bad: Collection[int]) -> None:
    good = [number not in bad for number in range(len(chunks))]
    before = mount.status()
    said = len(client.worker.said())
    assert client.exists(chunks) == [True] * len(chunks)
    loaded = client.load(chunks)
    assert loaded == [0 if whole else None for whole in good]
    assert client.worker.said()[said:].count("Input/output error") == len(bad)
    assert client.exists(chunks) == good
    assert not {chunks[number].name for number in bad} & set(os.listdir(client.base))
    assert client.load(chunks) == loaded
    after = mount.status()
    assert after["quarantined_objects"] == len(bad)
    assert after["counters"]["checksum_errors"] == before["counters"]["checksum_errors"] + len(bad)
    client.store(chunks)
    assert client.exists(chunks) == [True] * len(chunks)
    assert client.load(chunks) == [0] * len(chunks)


@pytest.mark.parametrize("kind", ["client", "adapter"])
@pytest.mark.parametrize("direct", [False, True], ids=["buffered", "direct"])
def test_after_a_remount(worker: Worker, mount: Mount, kind: str, direct: bool) -> None:
    chunks = make_chunks(6, LENGTH)
    with Client(worker, kind, mount.ns("kv"), direct=direct) as client:
        client.store(chunks)
    damage(mount, {chunks[number]: at for number, at in PLACES.items()}, remount=True)
    with Client(worker, kind, mount.ns("kv"), direct=direct) as client:
        check_missing_and_healed(mount, client, chunks, PLACES)
    mount.umount()
    mount.mount()
    with Client(worker, kind, mount.ns("kv"), direct=direct) as client:
        assert client.load(chunks) == [0] * 6


@pytest.mark.parametrize("stored_direct", [False, True], ids=["stored-buffered", "stored-direct"])
def test_while_mounted_with_direct_reads(worker: Worker, mount: Mount, stored_direct: bool) -> None:
    """Buffered readers may have right pages in the kernel's cache still; what is read from the medium is verified."""
    chunks = make_chunks(6, LENGTH)
    kv = mount.ns("kv")
    with (
        Client(worker, "client", kv, direct=stored_direct) as writer,
        Client(worker, "adapter", kv, direct=True) as reader,
    ):
        writer.store(chunks)
        damage(mount, {chunks[number]: at for number, at in PLACES.items()})
        check_missing_and_healed(mount, reader, chunks, PLACES)
        assert writer.load(chunks) == [0] * 6


def test_every_process_sees_the_miss(worker: Worker, make_worker: Callable[[], Worker], image: Mount) -> None:
    chunks = make_chunks(4, LENGTH)
    other = make_worker()
    kv = image.ns("kv")
    with Client(worker, "client", kv, direct=True) as one, Client(other, "client", kv, direct=True) as two:
        one.store(chunks)
        assert two.exists(chunks) == [True] * 4
        damage(image, {chunks[2]: 4096})
        assert one.load(chunks) == [0, 0, None, 0]
        assert two.exists(chunks) == [True, True, False, True]
        assert two.load(chunks) == [0, 0, None, 0]
        two.store(chunks[2:3])
        assert one.load(chunks) == [0] * 4


@pytest.mark.parametrize("direct", [False, True], ids=["buffered", "direct"])
def test_a_part_that_is_whole_is_loaded_from_a_damaged_chunk_once(worker: Worker, image: Mount, direct: bool) -> None:
    """Verified piece by piece: what is asked for and verifies is a hit, until somebody meets the damage."""
    chunks = make_chunks(2, LENGTH)
    with Client(worker, "client", image.ns("kv"), direct=direct) as client:
        client.store(chunks)
    damage(image, {chunks[0]: LENGTH - 1}, remount=True)
    with Client(worker, "client", image.ns("kv"), direct=direct) as client:
        assert client.load(chunks, length=4096) == [0, 0]
        assert client.load(chunks) == [None, 0]
        assert client.load(chunks, length=4096) == [None, 0]


def test_with_verify_open_it_is_no_file_at_all(worker: Worker, make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(allow_warnings=LOGGED)
    hcfs("ns", "create", mount.dir, "strict", "--verify", "open")
    chunks = make_chunks(4, LENGTH)
    with Client(worker, "client", mount.ns("strict"), direct=True) as client:
        client.store(chunks)
        damage(mount, {chunks[1]: LENGTH - 1}, namespace="strict")
        assert client.load(chunks, length=4096) == [0, None, 0, 0]
        assert "No such file or directory" in worker.said().splitlines()[-1]
        assert client.exists(chunks) == [True, False, True, True]
        client.store(chunks)
        assert client.load(chunks) == [0] * 4


def test_all_damaged_at_once(worker: Worker, image: Mount) -> None:
    chunks = make_chunks(8, LENGTH)
    kv = image.ns("kv")
    with Client(worker, "client", kv, direct=True) as client:
        client.store(chunks)
        damage(image, {chunk: number * 4097 for number, chunk in enumerate(chunks)})
        assert client.load(chunks) == [None] * 8
        assert client.exists(chunks) == [False] * 8
        assert os.listdir(kv) == []
        assert image.status()["quarantined_objects"] == 8
        client.store(chunks)
        assert client.load(chunks) == [0] * 8


def test_inspect_names_the_same_place(worker: Worker, image: Mount) -> None:
    """Between mounts there are no attributes; the command reads the metadata itself."""
    (chunk,) = chunks = make_chunks(1, LENGTH)
    with Client(worker, "client", image.ns("kv"), direct=True) as client:
        client.store(chunks)
    first = locate(image.ns("kv") / chunk.name, 0)
    image.umount()
    shown = json.loads(hcfs("inspect", image.source, "object", f"kv/{chunk.name}", "--json").stdout)
    assert shown["extents"][0]["block"] * 4096 == first, shown
