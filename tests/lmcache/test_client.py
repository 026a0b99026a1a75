"""Store, exists, load and delete through LMCache's own clients."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hcfs.lmcache.keys import ChunkName, file_name, parse_name
from lab.harness.lmcache.driver import MIB, Chunk, Client, Worker, make_chunks, make_key
from lab.harness.mounts import Mount


@pytest.fixture(params=["client", "adapter"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[False, True], ids=["buffered", "direct"])
def direct(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def client(worker: Worker, kind: str, base: Path, direct: bool) -> Iterator[Client]:
    with Client(worker, kind, base, direct=direct) as client:
        yield client


@pytest.mark.parametrize("tmp", ["", "tmp", "a/b"])
def test_store_exists_load_delete(worker: Worker, kind: str, base: Path, direct: bool, tmp: str) -> None:
    chunks = [*make_chunks(7, MIB), Chunk(make_key(7), 3 * MIB + 4096)]
    with Client(worker, kind, base, direct=direct, tmp=tmp) as client:
        assert client.exists(chunks) == [False] * 8
        assert client.load(chunks) == [None] * 8
        client.store(chunks)
        assert client.exists(chunks) == [True] * 8
        assert client.load(chunks) == [0] * 8
        assert {name: os.stat(base / name).st_size for name in os.listdir(base) if name.endswith(".data")} == {
            chunk.name: chunk.length for chunk in chunks
        }
        gone, kept = chunks[::2], chunks[1::2]
        assert client.delete(gone) in ([True] * 4, None)
        assert client.exists(chunks) == [False, True] * 4
        assert client.load(chunks) == [None, 0] * 4
        assert client.delete(gone) in ([False] * 4, None)
        client.store(gone)
        assert client.load(chunks) == [0] * 8
    assert not [name for _, _, names in os.walk(base) for name in names if name.endswith(".tmp")]
    assert sorted(name for _, _, names in os.walk(base) for name in names) == sorted(
        chunk.name for chunk in kept + gone
    )


def test_lengths_and_buffer_addresses(client: Client) -> None:
    """With O_DIRECT the client goes through the page cache when the length isn't whole blocks, and refuses by itself a
    buffer that isn't at a block's address; the adapter rounds lengths up first."""
    lengths = [1, 511, 4095, 4096, 4097, MIB - 1, MIB + 512, 2 * MIB]
    for number, (length, skew) in enumerate(itertools.product(lengths, [0, 64, 512])):
        whole = client.kind == "adapter" or length % 4096 == 0
        refused = client.direct and whole and skew > 0
        chunks = make_chunks(3, length, first=3 * number)
        ok, error = client.try_store(chunks, skew=skew)
        assert ok is not refused, (length, skew, error)
        if refused:
            assert client.exists(chunks) == [False] * 3
            client.store(chunks)
        assert client.load(chunks) == [0] * 3, (length, skew)
        assert client.load(chunks, skew=skew) == ([None] * 3 if refused else [0] * 3), (length, skew)
        assert client.exists(chunks) == [True] * 3


def test_a_read_ahead_is_read_in_two_parts(worker: Worker, base: Path) -> None:
    chunks = make_chunks(4, MIB + 77)
    with Client(worker, "client", base, read_ahead=128 * 1024) as client:
        client.store(chunks)
        assert client.load(chunks) == [0] * 4


def test_a_shorter_object_is_a_miss_and_a_longer_one_gives_its_beginning(client: Client) -> None:
    chunks = make_chunks(1, MIB)
    client.store(chunks)
    assert client.load(chunks, length=MIB - 4096) == [0]
    assert client.load(chunks, length=MIB - 100) == [0]
    assert client.load(chunks, length=MIB + 4096) == [None]
    assert client.load(chunks, length=MIB + 4097) == [None]
    assert client.exists(chunks) == [True]
    assert client.load(chunks) == [0]


def test_one_miss_in_a_batch_is_that_keys_alone(client: Client) -> None:
    chunks = make_chunks(8, 64 * 1024)
    client.store(chunks[:3] + chunks[4:])
    assert client.exists(chunks) == [True] * 3 + [False] + [True] * 4
    assert client.load(chunks) == [0] * 3 + [None] + [0] * 4


def test_a_store_of_an_existing_key_changes_nothing(client: Client) -> None:
    """The client looks first and takes any file of the name for the chunk."""
    first, second = make_chunks(4, MIB), make_chunks(4, MIB, version=1)
    client.store(first)
    before = [os.stat(client.base / chunk.name).st_ino for chunk in first]
    client.store(second)
    assert [os.stat(client.base / chunk.name).st_ino for chunk in first] == before
    assert client.load(first, versions=(0, 1)) == [0] * 4
    client.delete(first)
    client.store(second)
    assert client.load(first, versions=(0, 1)) == [1] * 4


def test_tenants_with_the_same_chunk_have_files_of_their_own(client: Client) -> None:
    salts = ["", "tenant-a", "tenant-b", "Ünïcode ~ salt", "s" * 128]
    chunks = [Chunk(make_key(1, salt=salt), 256 * 1024, version) for version, salt in enumerate(salts)]
    if not _fits(client.base, chunks[-1]):
        del chunks[-1]
    client.store(chunks)
    assert [client.load([chunk], versions=range(5)) for chunk in chunks] == [[chunk.version] for chunk in chunks]
    client.delete(chunks[1:2])
    assert client.exists(chunks) == [True, False] + [True] * (len(chunks) - 2)


def test_groups_and_ranks_have_files_of_their_own(client: Client) -> None:
    chunks = [Chunk(make_key(1, group=group), 4096, group) for group in (0, 1, 15, 255, 4096)]
    client.store(chunks)
    assert [client.load([chunk], versions=[chunk.version]) for chunk in chunks] == [[c.version] for c in chunks]


def _fits(base: Path, chunk: Chunk) -> bool:
    return len(os.fsencode(chunk.name)) <= os.statvfs(base).f_namemax


def named(bytes_wanted: int, *, number: int = 0, salt: str = "", length: int = MIB) -> Chunk:
    """A chunk whose file's name has so many bytes."""
    short = Chunk(make_key(number, model="o/", salt=salt), length)
    model = "o/" + "m" * (bytes_wanted - len(os.fsencode(short.name)))
    chunk = Chunk(make_key(number, model=model, salt=salt), length)
    assert len(os.fsencode(chunk.name)) == bytes_wanted
    return chunk


@pytest.mark.parametrize("tmp", ["", "tmp"])
@pytest.mark.parametrize("size", [255, 256, 700, 1024])
def test_long_names_work_on_hcfs(worker: Worker, kind: str, kv: Path, direct: bool, size: int, tmp: str) -> None:
    """ext4 and xfs end at 255: with a long model name and a salt, every store fails there."""
    chunks = [named(size, number=number, salt="t" * 60) for number in range(4)]
    with Client(worker, kind, kv, direct=direct, tmp=tmp) as client:
        client.store(chunks)
        assert client.exists(chunks) == [True] * 4
        assert client.load(chunks) == [0] * 4
        assert {name for name in os.listdir(kv) if name != "tmp"} == {chunk.name for chunk in chunks}
        client.delete(chunks)
        assert client.exists(chunks) == [False] * 4


def test_a_name_one_byte_too_long_fails_its_store_and_leaves_nothing(worker: Worker, kv: Path) -> None:
    limit = os.statvfs(kv).f_namemax
    with Client(worker, "client", kv) as client:
        ok, error = client.try_store([named(limit + 1)])
        assert not ok
        assert "File name too long" in error
        assert os.listdir(kv) == []


def test_the_file_systems_own_limit_shows_on_a_plain_directory(worker: Worker, tmp_path: Path) -> None:
    with Client(worker, "client", tmp_path) as client:
        client.store([named(255)])
        ok, error = client.try_store([named(256, number=1)])
        assert not ok
        assert "File name too long" in error


def test_nothing_is_left_staged_and_usage_is_accounted_for(worker: Worker, kind: str, direct: bool, make_mount) -> None:
    mount: Mount = make_mount(options="lookup_grace=0")
    before = mount.status()
    chunks = make_chunks(16, MIB + 4096) + make_chunks(4, 12345, salt="tenant")
    with Client(worker, kind, mount.ns("kv"), direct=direct) as client:
        client.store(chunks)
        status = mount.status()
        assert (status["staged_objects"], status["staged_bytes"]) == (0, 0)
        assert status["namespaces"]["kv"]["objects"] == len(chunks)
        rounded = sum(-(-os.stat(mount.ns("kv") / chunk.name).st_size // 4096) * 4096 for chunk in chunks)
        assert status["namespaces"]["kv"]["used_bytes"] == rounded
        assert status["namespaces"]["kv"]["salts"]["tenant"] == 4 * 4 * 4096
        parts = ("used", "free", "staged", "pending", "quarantined")
        assert sum(status[f"{part}_bytes"] for part in parts) == status["capacity_bytes"]
        client.delete(chunks)
        assert os.listdir(mount.ns("kv")) == []
    mount.umount()
    mount.mount()
    assert mount.status()["used_bytes"] == before["used_bytes"]


def test_chunks_are_there_after_a_remount(worker: Worker, kind: str, make_mount) -> None:
    mount: Mount = make_mount()
    chunks = make_chunks(6, 2 * MIB) + make_chunks(2, 999, salt="tenant")
    with Client(worker, kind, mount.ns("kv"), direct=True) as client:
        client.store(chunks)
    mount.umount()
    mount.mount()
    with Client(worker, kind, mount.ns("kv"), direct=True) as client:
        assert client.exists(chunks) == [True] * 8
        assert client.load(chunks) == [0] * 8


def test_the_names_on_the_mount_are_the_keys(worker: Worker, kind: str, base: Path) -> None:
    """hcfs.lmcache.keys against what the clients really write."""
    chunks = [
        Chunk(make_key(number, model=model, salt=salt, group=group), 100)
        for number, (model, salt, group) in enumerate(
            [("plain", "", 0), ("org/name", "", 7), ("a/b/c", "t", 0), ("-SEP-", "", 0), ("Ü b", "ö", 300)]
        )
    ]
    with Client(worker, kind, base) as client:
        client.store(chunks)
    found = [parse_name(name) for name in os.listdir(os.fsencode(base))]
    assert {name.name for name in found} == {file_name(chunk.key) for chunk in chunks}
    assert all(isinstance(name, ChunkName) for name in found)
    assert {chunk.key for chunk in chunks if "-SEP-" not in chunk.key.model} <= {name.key for name in found}
