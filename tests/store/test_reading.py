"""Reading committed objects: verified bytes, or an error that names the granule."""

from __future__ import annotations

import random

import pytest
from store.devices import Fault, Watched
from store.rig import GRANULE, content, get, in_thread, new_device, put, recover, stage

from hcfs.store import BLOCK, Store
from hcfs.store.errors import ChecksumMismatch, NoSuchObject, UnreadableGranule
from hcfs.store.granule_cache import GranuleCache

SIZE = 6 * GRANULE + 777
DATA = content("reading", SIZE)


@pytest.fixture
def watched() -> Watched:
    return Watched(new_device())


@pytest.fixture
def store(watched: Watched) -> Store:
    return recover(watched)


@pytest.fixture
def oid(store: Store) -> int:
    oid = put(store, b"a", DATA)
    store.commit()
    return oid


def spoil(store: Store, oid: int, at: int) -> None:
    """Flip a bit of the object's byte `at` on the medium."""
    (extent,) = store.content.extents_of(oid)
    store.device.inner.contents[extent.block * BLOCK + at] ^= 0x10  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(6))
def test_any_range_reads_as_written(seed: int, store: Store, oid: int) -> None:
    rng, pin = random.Random(seed), store.pin(oid)
    for _ in range(60):
        at = rng.choice((rng.randrange(SIZE + 100), GRANULE * rng.randrange(7), SIZE - 1, SIZE))
        length = rng.choice((1, 4096, rng.randrange(1, 3 * GRANULE), GRANULE, 128 << 10, 1 << 20))
        assert store.read(pin, at, length) == DATA[at : at + length]
    pin.release()


def test_a_flipped_bit_is_an_error_and_the_rest_reads_on(store: Store, oid: int) -> None:
    spoil(store, oid, 2 * GRANULE + 99)
    pin = store.pin(oid)
    for at, length in ((2 * GRANULE, 1), (0, SIZE), (2 * GRANULE + 100, 10), (GRANULE, GRANULE + 1)):
        with pytest.raises(ChecksumMismatch) as failed:
            store.read(pin, at, length)
        assert (failed.value.oid, failed.value.granule) == (oid, 2)
        assert "granule 2 of object" in str(failed.value)
    assert store.read(pin, 0, 2 * GRANULE) == DATA[: 2 * GRANULE]
    assert store.read(pin, 3 * GRANULE, SIZE) == DATA[3 * GRANULE :]
    with pytest.raises(ChecksumMismatch):
        store.content.verify(pin)
    assert store.counters.checksum_errors == 5
    assert store.is_current(oid), "who read decides about quarantine"


def test_content_of_another_object_or_place_is_an_error(store: Store, oid: int) -> None:
    """A misdirected write or read: whole blocks, but not these."""
    other = put(store, b"b", DATA)
    (ours,), (theirs,) = store.content.extents_of(oid), store.content.extents_of(other)
    contents = store.device.inner.contents  # type: ignore[attr-defined]
    one, two = ours.block * BLOCK, theirs.block * BLOCK
    assert contents[one : one + SIZE] == contents[two : two + SIZE] == DATA
    contents[one : one + GRANULE] = contents[one + GRANULE : one + 2 * GRANULE]
    with pytest.raises(ChecksumMismatch):
        get(store, oid)
    store.content.verify(store.pin(other))
    # The checksums that one object's record holds don't fit the same bytes of another object.
    assert store.content.checksums_of(store.pin(oid)) != store.content.checksums_of(store.pin(other))


def test_a_read_error_names_its_granule(store: Store, watched: Watched, oid: int) -> None:
    (extent,) = store.content.extents_of(oid)
    bad = extent.block * BLOCK + 3 * GRANULE + 5000
    watched.hooks.append(Fault("read", bad, bad + 1))
    pin = store.pin(oid)
    with pytest.raises(UnreadableGranule, match="can't be read") as failed:
        store.read(pin, 0, SIZE)
    assert (failed.value.oid, failed.value.granule) == (oid, 3)
    assert store.read(pin, 4 * GRANULE, SIZE) == DATA[4 * GRANULE :]
    with pytest.raises(UnreadableGranule):
        store.content.verify(pin)
    assert store.counters.device_errors == 2


def test_a_read_error_that_does_not_come_again_is_one_all_the_same(store: Store, watched: Watched, oid: int) -> None:
    (extent,) = store.content.extents_of(oid)
    watched.hooks.append(Fault("read", extent.block * BLOCK, times=1))
    with pytest.raises(UnreadableGranule) as failed:
        store.read(store.pin(oid), 0, SIZE)
    assert failed.value.granule == 0


def test_looking_for_the_bad_granule_needs_no_second_buffer(watched: Watched) -> None:
    """The first one, still held by the error's frames, may be all that the pool has."""
    store = recover(watched, pool=512 << 10)
    oid = put(store, b"a", content(0, 512 << 10))
    (extent,) = store.content.extents_of(oid)
    watched.hooks.append(Fault("read", extent.block * BLOCK + 3 * GRANULE, extent.block * BLOCK + 3 * GRANULE + 1))
    pin = store.pin(oid)
    with pytest.raises(UnreadableGranule):
        in_thread(lambda: store.read(pin, 0, 512 << 10)).result(20)


def test_writing_out_needs_no_second_buffer(watched: Watched) -> None:
    store = recover(watched, pool=4096)
    staged = stage(store)

    def write() -> None:
        for block in range(0, 200, 2):
            staged.write(block * BLOCK, b"x" * 100)
        staged.seal()

    in_thread(write).result(20)
    assert bytes(staged.read(4 * BLOCK, 100)) == b"x" * 100


def test_reading_in_parts_reads_each_granule_once(store: Store, watched: Watched, oid: int) -> None:
    reads: list[tuple[int, int]] = []
    watched.hooks.append(lambda operation, at, length: reads.append((at, length)) if operation == "read" else None)
    pin = store.pin(oid)
    for step, expected in ((4096, SIZE // GRANULE + 1), (96 << 10, 6)):
        reads.clear()
        store.content.granules = GranuleCache(4 * GRANULE)
        data = b"".join(bytes(store.read(pin, at, step)) for at in range(0, SIZE, step))
        assert data == DATA
        assert len(reads) <= expected
    assert store.counters.read_bytes == 2 * SIZE


def test_the_cache_of_granules_is_bounded() -> None:
    cache = GranuleCache(100)
    for number in range(10):
        cache.put((number, 0, 0), bytes(30))
    assert [cache.get((number, 0, 0)) is not None for number in range(10)] == [False] * 7 + [True] * 3
    cache.get((7, 0, 0))
    cache.put((99, 0, 0), bytes(30))
    assert cache.get((7, 0, 0)) is not None
    assert cache.get((8, 0, 0)) is None
    cache.put((1, 1, 1), bytes(101))
    assert cache.get((1, 1, 1)) is None
    cache.put((99, 0, 0), b"other")
    assert cache.get((99, 0, 0)) == bytes(30)


def test_the_cache_does_not_outlive_the_content(store: Store) -> None:
    oid = put(store, b"a.lock", b"first content")
    assert store.read(store.pin(oid), 0, 5) == b"first"
    staged = store.stage_in_place(oid)
    staged.write(0, b"other")
    staged.seal()
    store.publish_in_place(staged)
    assert store.read(store.pin(oid), 0, 5) == b"other"


def test_what_does_not_exist_has_no_checksum(store: Store) -> None:
    with pytest.raises(NoSuchObject):
        store.content.content_crc32c(12345)
    pin = store.pin(put(store, b"e", b""))
    assert (store.content.checksums_of(pin), bytes(store.read(pin, 0, 10))) == (b"", b"")
    store.content.verify(pin)
