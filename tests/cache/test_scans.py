"""Large files that are stored and read once beside a working set of KV chunks: the working set stays."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from hcfs.store import BLOCK
from hcfs.store.errors import NoSuchObject

from .conftest import Rig

CAPACITY = 32 << 20
CHUNK = 8
"""Blocks of a KV chunk."""
SHARD = 150
"""Blocks of a file of weights: above capacity / 256, as 600 KiB is here, and 5 GiB on a TiB."""


def read(rig: Rig, name: str, namespace: str = "kv") -> bool:
    """As a client does: look up, open, read, close. Whether it was there."""
    oid = rig.store.lookup(rig.namespace(namespace), name.encode())
    if oid is None or not rig.cache.looked_up(oid):
        return False
    try:
        pin = rig.store.pin(oid)
    except NoSuchObject:
        return False
    rig.cache.used(oid)
    assert bytes(rig.store.read(pin, 0, BLOCK)) == name.encode()[:1] * BLOCK
    pin.release()
    return True


def read_or_store(rig: Rig, name: str, blocks: int, namespace: str = "kv") -> bool:
    hit = read(rig, name, namespace)
    if not hit:
        rig.put(name, blocks, namespace)
    return hit


def scan(rig: Rig, times: float, namespace: str, reads: int = 1) -> None:
    """Weights of `times` the capacity, each file stored, and read so often within minutes."""
    for number in range(int(rig.store.usage().capacity * times) // (SHARD * BLOCK)):
        name = f"weights{rig.now:.0f}-{number}"
        rig.put(name, SHARD, namespace)
        for _ in range(reads):
            rig.now += 30
            assert read(rig, name, namespace)


@pytest.fixture
def hot(make_rig: Callable[..., Rig]) -> Rig:
    """A device whose half are KV chunks."""
    rig = make_rig(CAPACITY, 8192)
    for number in range(rig.store.usage().capacity // 2 // (CHUNK * BLOCK)):
        rig.put(f"chunk{number}", CHUNK)
    return rig


def chunks(rig: Rig) -> int:
    return sum(name.startswith("chunk") for name in rig.names())


@pytest.mark.parametrize("namespace", ["kv", "weights"])
@pytest.mark.parametrize("reads", [0, 1, 3])
def test_a_scan_of_three_times_the_device_leaves_every_chunk(hot: Rig, namespace: str, reads: int) -> None:
    """Though none of them is used meanwhile, where least-recently-used order alone would let all go."""
    before = chunks(hot)
    scan(hot, 3, namespace, reads)
    assert chunks(hot) == before


def test_the_hit_ratio_of_a_working_set_stays_beside_scans(hot: Rig) -> None:
    """Chunks are used with different frequencies, and new ones come, while weights pass through."""
    choose = random.Random(7)
    names = [f"chunk{number}" for number in range(chunks(hot))]
    popular = names[::3]

    def turn() -> int:
        hits = 0
        for name in choose.choices(popular, k=100):
            hot.now += 1
            hits += read_or_store(hot, name, CHUNK)
        return hits

    for _ in range(5):
        turn()
    hot.now += 100
    before = sum(turn() for _ in range(5))
    during = 0
    for number in range(5):
        during += turn()
        scan(hot, 0.7, "kv")
        for new in range(20):
            hot.put(f"once{number}-{new}", CHUNK)
    assert before == 500
    assert during == 500


def test_a_model_of_a_fifth_of_the_cache_can_be_stored_and_loaded_on_a_full_device(hot: Rig) -> None:
    number = 0
    while hot.store.usage().free > SHARD * BLOCK:
        hot.put(f"more{number}", CHUNK)
        number += 1
    names = [f"model{number}" for number in range(int(0.19 * hot.store.usage().capacity / (SHARD * BLOCK)))]
    for name in names:
        hot.put(name, SHARD)
        for number in range(4):
            hot.put(f"x{name}{number}", CHUNK)
    assert set(names) <= set(hot.names())


def test_weights_that_are_used_again_are_worth_as_much_as_chunks(hot: Rig) -> None:
    """Loaded an hour after it was stored, a model outlives a scan like the chunks."""
    names = [f"model{number}" for number in range(5)]
    for name in names:
        hot.put(name, SHARD)
    hot.now += 3600
    for name in names:
        assert read(hot, name)
    scan(hot, 2, "kv")
    assert set(names) <= set(hot.names())


def test_weights_that_nobody_uses_go_before_chunks_that_are_newer(hot: Rig) -> None:
    """Their share is a bound, not a right."""
    scan(hot, 0.1, "kv")
    for number in range(2 * hot.store.usage().capacity // (CHUNK * BLOCK)):
        hot.put(f"new{number}", CHUNK)
    assert not any(name.startswith("weights") for name in hot.names())


def test_an_idle_namespace_gives_its_room_to_a_busy_one(hot: Rig) -> None:
    """Its protected objects too: they come off protection as it shrinks."""
    hot.now += 100
    before = chunks(hot)
    for number in range(0, before, 2):
        read(hot, f"chunk{number}")
    for number in range(3 * hot.store.usage().capacity // (CHUNK * BLOCK)):
        hot.put(f"new{number}", CHUNK, "busy")
    assert chunks(hot) < before // 20
