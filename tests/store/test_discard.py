"""Discards: only what is free, and nothing that was given to a writer meanwhile."""

from __future__ import annotations

import random
import threading

import pytest
from store.devices import Watched
from store.rig import GRANULE, check_space, content, get, in_thread, named, namespace, new_device, put, recover, stage

from hcfs.store import BLOCK, Store
from hcfs.store.discard import Discards
from hcfs.store.errors import NoSpace


class Medium(Watched):
    """A device that remembers discards, and may wait in them."""

    def __init__(self, size: int = 12 << 20) -> None:
        super().__init__(new_device(size))
        self.discards: list[tuple[int, int]] = []
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.takes = True

    def discard(self, offset: int, length: int) -> bool:
        self.discards.append((offset // BLOCK, length // BLOCK))
        self.entered.set()
        assert self.go_on.wait(20)
        return self.takes and super().discard(offset, length)

    def blocks(self) -> set[int]:
        return {block + n for block, count in self.discards for n in range(count)}


def blocks_of(store: Store, oid: int) -> set[int]:
    return {extent.block + n for extent in store.content.extents_of(oid) for n in range(extent.count)}


def test_it_begins_with_all_that_is_free() -> None:
    medium = Medium()
    store = recover(medium)
    kept = put(store, b"kept", content(1, 100_000))
    discards = Discards(store)
    assert discards.pending_bytes == store.usage().free
    discards.run(10)
    assert discards.pending_bytes == 0
    assert discards.discarded_bytes == store.usage().free
    assert len(medium.blocks()) == store.usage().free // BLOCK
    assert not medium.blocks() & blocks_of(store, kept)
    assert named(store, b"kept") == content(1, 100_000)
    check_space(store)


def test_only_when_durable_and_unpinned() -> None:
    medium = Medium()
    store = recover(medium)
    discards = Discards(store)
    discards.run(10)
    oid = put(store, b"a", content(1, 3 * GRANULE))
    held = put(store, b"b", content(2, 2 * GRANULE))
    store.commit()
    blocks, pinned = blocks_of(store, oid), blocks_of(store, held)
    discards.run(10)
    medium.discards.clear()
    pin = store.pin(held)
    for name in (b"a", b"b"):
        store.unlink(namespace(store), name)
    discards.run(10)
    assert not medium.blocks() & (blocks | pinned)
    store.commit()
    discards.run(10)
    assert medium.blocks() >= blocks
    assert not medium.blocks() & pinned
    assert bytes(store.read(pin, 0, 2 * GRANULE)) == content(2, 2 * GRANULE)
    pin.release()
    assert discards.pending_bytes == len(pinned) * BLOCK
    discards.run(10)
    assert medium.blocks() >= pinned


def test_what_is_allocated_again_is_left_alone() -> None:
    medium = Medium()
    store = recover(medium)
    discards = Discards(store)
    discards.run(10)
    oid = put(store, b"a", content(1, 4 * GRANULE))
    blocks = blocks_of(store, oid)
    store.evict(oid)
    store.commit()
    discards.run(0)
    medium.discards.clear()
    again = put(store, b"b", content(2, 4 * GRANULE))
    assert blocks_of(store, again) == blocks
    discards.run(10)
    assert not medium.blocks() & blocks
    assert named(store, b"b") == content(2, 4 * GRANULE)


def test_nobody_is_given_what_is_being_discarded() -> None:
    """A writer that finds no other room waits for it."""
    medium = Medium()
    store = recover(medium)
    discards = Discards(store)
    medium.go_on.clear()
    run = in_thread(lambda: discards.run(0.01))
    assert medium.entered.wait(20)
    ((_, count),) = medium.discards
    usage = store.usage()
    assert usage.pending == count * BLOCK
    assert usage.used + usage.free + usage.staged + usage.pending + usage.quarantined == usage.capacity
    staged = stage(store)
    written = in_thread(lambda: staged.write(0, bytes(usage.capacity)))
    with pytest.raises(TimeoutError):
        written.result(0.3)
    medium.go_on.set()
    assert written.result(20) == usage.capacity
    run.result(20)
    with pytest.raises(NoSpace):
        staged.write(usage.capacity, bytes(GRANULE))
    staged.abandon()
    check_space(store)


def test_a_medium_that_takes_none_after_all() -> None:
    medium = Medium()
    medium.takes = False
    store = recover(medium)
    discards = Discards(store)
    discards.run(10)
    assert (discards.discarded_bytes, discards.refused_bytes) == (0, store.usage().free)
    check_space(store)


def test_beside_writers() -> None:
    """Threads write, read back, replace and remove, with discards that zero: nothing of what is committed is hit."""
    medium = Medium(24 << 20)
    store = recover(medium)
    discards = Discards(store)
    end = threading.Event()
    discarding = in_thread(lambda: [discards.run(0.05) for _ in iter(end.is_set, True)])

    def work(me: int) -> int:
        chance, kept = random.Random(me), {}
        for number in range(60):
            name = b"%d.%d" % (me, chance.randrange(6))
            data = content((me, number), chance.randrange(1, 6 * GRANULE))
            put(store, name, data)
            kept[name] = data
            if chance.random() < 0.4:
                gone = chance.choice(sorted(kept))
                store.unlink(namespace(store), gone)
                del kept[gone]
            if chance.random() < 0.5:
                store.commit()
            for other, expected in kept.items():
                oid = store.lookup(namespace(store), other)
                assert oid is not None
                assert get(store, oid) == expected
        return len(kept)

    workers = [in_thread(lambda me=me: work(me)) for me in range(3)]  # type: ignore[misc]
    assert sum(worker.result(120) for worker in workers) > 3
    end.set()
    discarding.result(20)
    assert discards.discarded_bytes > 24 << 20
    store.commit()
    check_space(store)
