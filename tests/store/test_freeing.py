"""Space: every block accounted for after every step, and none given out again too early."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import TimeoutError as StillRunning
from dataclasses import dataclass, field

import pytest
from store.devices import Watched
from store.rig import (
    GRANULE,
    again,
    check_space,
    content,
    get,
    in_thread,
    named,
    namespace,
    new_device,
    new_store,
    put,
    recover,
    stage,
)

from hcfs.device import DeviceError
from hcfs.store import BLOCK, Pin, Staged, Store
from hcfs.store.errors import NoSpace
from hcfs.store.superblock import read_superblock


@dataclass
class Guard:
    """A device hook that fails the test when blocks are written that a durable record still names, or a pin reads."""

    durable: set[int] = field(default_factory=set)
    pinned: dict[int, int] = field(default_factory=dict)
    """blocks by how many pins read them"""

    def __call__(self, operation: str, offset: int, length: int) -> None:
        if operation == "write":
            blocks = range(offset // BLOCK, (offset + length) // BLOCK)
            assert not self.durable.intersection(blocks), "a durable record names these blocks"
            assert not any(block in self.pinned for block in blocks), "a pin reads these blocks"

    def follow(self, store: Store) -> None:
        """After each commit, whoever asks for it: what the next mount would find."""
        commit, checkpoint = store.durability._commit, store.durability._checkpoints.write

        def noted(call: Callable[..., bool | None]) -> Callable[..., bool | None]:
            def wrapped(*args: object, **kwargs: object) -> bool | None:
                done = call(*args, **kwargs)
                if done is not False:
                    table = store.ledger.index.table
                    self.durable = {
                        e.block + i for slot in table.slots() for e in table.extents(slot) for i in range(e.count)
                    }
                return done

            return wrapped

        store.durability._commit = noted(commit)  # type: ignore[method-assign, assignment]
        store.durability._checkpoints.write = noted(checkpoint)  # type: ignore[method-assign, assignment]

    def pin(self, pin: Pin) -> None:
        for extent in pin.extents:
            for block in range(extent.block, extent.block + extent.count):
                self.pinned[block] = self.pinned.get(block, 0) + 1

    def unpin(self, pin: Pin) -> None:
        for extent in pin.extents:
            for block in range(extent.block, extent.block + extent.count):
                self.pinned[block] -= 1
                if not self.pinned[block]:
                    del self.pinned[block]


def guarded() -> tuple[Store, Guard]:
    guard = Guard()
    store = recover(Watched(new_device(8 << 20), guard))
    guard.follow(store)
    namespace(store)
    store.commit()
    return store, guard


def blocks_of(store: Store, oid: int) -> set[int]:
    return {e.block + i for e in store.content.extents_of(oid) for i in range(e.count)}


def test_blocks_are_free_when_their_drop_is_durable() -> None:
    store, _ = guarded()
    oid = put(store, b"a", content(0, GRANULE))
    store.commit()
    store.unlink(namespace(store), b"a")
    check_space(store)
    assert (store.usage().used, store.usage().pending) == (0, GRANULE)
    assert not store.is_current(oid)
    store.commit()
    assert store.usage().free == store.usage().capacity
    check_space(store)


def test_blocks_are_free_when_the_last_pin_is_gone() -> None:
    store, _ = guarded()
    oid = put(store, b"a", content(0, GRANULE))
    pins = [store.pin(oid), store.pin(oid)]
    assert store.usage().pinned_used == GRANULE
    put(store, b"a", content(1, GRANULE))
    store.commit()
    check_space(store)
    assert (store.usage().pending, store.usage().pinned_used) == (GRANULE, 0)
    pins[0].release()
    pins[0].release()
    assert store.usage().pending == GRANULE
    assert bytes(store.read(pins[1], 0, GRANULE)) == content(0, GRANULE)
    pins[1].release()
    assert store.usage().pending == 0
    check_space(store)


def test_a_pin_that_goes_before_the_commit_does_not_free() -> None:
    store, _ = guarded()
    pin = store.pin(put(store, b"a", content(0, GRANULE)))
    store.unlink(namespace(store), b"a")
    pin.release()
    assert store.usage().pending == GRANULE
    store.commit()
    assert store.usage().pending == 0


def test_a_full_store_waits_for_the_record_of_what_was_dropped() -> None:
    """Without anything evictable: the space is there, but for a commit."""
    store, _guard = guarded()
    size = store.usage().capacity * 2 // 3
    for number in range(5):
        oid = put(store, b"a", content(number, size))
        if number == 0:
            store.commit()
        assert named(store, b"a") is not None
        store.evict(oid)
        check_space(store)


def test_space_that_another_commit_is_about_to_free_is_waited_for() -> None:
    """The commit under way has taken the list of what it frees: that isn't a full device."""
    store, _ = guarded()
    size = store.usage().capacity * 2 // 3
    store.evict(put(store, b"a", content(0, size)))
    flushing, go_on = threading.Event(), threading.Event()

    def hook(operation: str, offset: int, length: int) -> None:
        if operation == "flush":
            flushing.set()
            assert go_on.wait(20)

    store.device.hooks.append(hook)  # type: ignore[attr-defined]
    committing = in_thread(store.commit)
    assert flushing.wait(20)
    writing = in_thread(lambda: put(store, b"b", content(1, size)))
    with pytest.raises(StillRunning):
        writing.result(0.05)
    go_on.set()
    committing.result(20)
    assert get(store, writing.result(20)) == content(1, size)
    check_space(store)


@dataclass
class Run:
    """A random life of a store, with everything it should hold beside it."""

    rng: random.Random
    store: Store
    guard: Guard
    model: dict[bytes, bytes] = field(default_factory=dict)
    staged: list[tuple[Staged, bytearray]] = field(default_factory=list)
    pins: list[tuple[Pin, bytes]] = field(default_factory=list)
    counter: int = 0

    def step(self) -> None:
        rng, store, kv = self.rng, self.store, namespace(self.store)
        name = b"%d" % rng.randrange(8)
        kind = rng.choice(
            (
                *(
                    "put",
                    "put",
                    "stage",
                    "write",
                    "write",
                    "end",
                    "pin",
                    "unpin",
                    "unlink",
                    "evict",
                    "commit",
                    "commit",
                ),
                *("quarantine", "purge", "checkpoint", "link", "place"),
            )
        )
        self.counter += 1
        oid = store.lookup(kv, name)
        if kind == "put":
            data = content(self.counter, rng.choice((1, BLOCK, 3 * GRANULE, 10 * GRANULE)))
            staged = stage(store)
            self.staged.append((staged, bytearray(data)))
            staged.write(0, data)
            staged.seal()
            self.staged.pop()
            store.publish(staged, kv, name)
            self.model[name] = data
        elif kind == "stage":
            base = oid if rng.random() < 0.5 else None
            self.staged.append((stage(store, base), bytearray(self.model[name] if base else b"")))
        elif kind == "write" and self.staged:
            staged, model = rng.choice(self.staged)
            at, data = rng.randrange(5 * GRANULE), rng.randbytes(rng.choice((10, 5000, 2 * GRANULE)))
            staged.write(at, data)
            model.extend(bytes(max(0, at + len(data) - len(model))))
            model[at : at + len(data)] = data
        elif kind == "end" and self.staged:
            staged, model = self.staged.pop(rng.randrange(len(self.staged)))
            if staged.modified and rng.random() < 0.7:
                self.staged.append((staged, model))
                staged.seal()
                check_space(store, *[s for s, _ in self.staged])
                self.staged.pop()
                store.publish(staged, kv, name)
                self.model[name] = bytes(model)
            else:
                staged.abandon()
        elif kind == "pin" and oid:
            self.pins.append((store.pin(oid), self.model[name]))
            self.guard.pin(self.pins[-1][0])
        elif kind == "unpin" and self.pins:
            pin, data = self.pins.pop(rng.randrange(len(self.pins)))
            assert b"".join(bytes(store.read(pin, at, 1 << 20)) for at in range(0, len(data), 1 << 20)) == data
            self.guard.unpin(pin)
            pin.release()
        elif kind == "unlink" and oid:
            store.unlink(kv, name)
            del self.model[name]
        elif kind == "evict" and oid and store.evict(oid) is not None:
            self._forget_names()
        elif kind == "quarantine" and oid:
            store.quarantine(oid, "test")
            self._forget_names()
        elif kind == "purge":
            for found in store.removals.quarantined():
                store.removals.purge(found.id)
        elif kind == "link" and oid:
            other = b"%d" % rng.randrange(8)
            if store.lookup(kv, other) is None:
                store.link(oid, kv, other)
                self.model[other] = self.model[name]
        elif kind == "place" and oid:
            staged = store.stage_in_place(oid)
            self.staged.append((staged, bytearray()))
            data = content(self.counter, 3000)
            staged.truncate(0)
            staged.write(0, data)
            staged.seal()
            self.staged.pop()
            store.publish_in_place(staged)
            for own in [n for n in self.model if store.lookup(kv, n) == oid]:
                self.model[own] = data
        elif kind in ("commit", "checkpoint"):
            if kind == "commit":
                store.commit()
            else:
                store.checkpoint()
        check_space(store, *[s for s, _ in self.staged])
        assert {n: get(store, o) for n, o in store.list_directory(kv)} == self.model

    def _forget_names(self) -> None:
        kv = namespace(self.store)
        for own in [n for n in self.model if self.store.lookup(kv, n) is None]:
            del self.model[own]


@pytest.mark.parametrize("seed", range(12))
def test_a_random_life(seed: int) -> None:
    store, guard = guarded()
    run = Run(random.Random(seed), store, guard)
    for _ in range(150):
        try:
            run.step()
        except NoSpace:
            # The device is small; what was half done is given up.
            for staged, _ in run.staged:
                staged.abandon()
            run.staged.clear()
    for staged, _ in run.staged:
        staged.abandon()
    for pin, _ in run.pins:
        pin.release()
    store.commit()
    check_space(store)
    assert (store.usage().staged, store.usage().pending, store.usage().pinned_used) == (0, 0, 0)
    found = again(store)
    assert {n: get(found, o) for n, o in found.list_directory(namespace(found))} == run.model
    check_space(found)


def test_objects_of_a_lost_commit_leave_their_blocks_free() -> None:
    store = new_store()
    namespace(store)
    store.commit()
    put(store, b"a", content(0, GRANULE))
    found = again(store)
    assert found.usage().free == found.usage().capacity
    check_space(found)


def test_the_superblock_is_never_written_by_a_mount() -> None:
    store, _ = guarded()
    before = read_superblock(store.device)

    def hook(operation: str, offset: int, length: int) -> None:
        if operation == "write" and (offset == 0 or offset + length == store.device.size):
            raise DeviceError("faulty", operation, offset, length)

    store.device.hooks.append(hook)  # type: ignore[attr-defined]
    put(store, b"a", content(0, GRANULE))
    store.commit()
    store.checkpoint()
    assert read_superblock(store.device) == before
