"""Crashes: whatever part of the unflushed writes came through, the next mount finds what was acknowledged, or a later
moment of it; whole objects only, and a store that is sound."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from store.devices import Crashing
from store.rig import GRANULE, check_space, content, namespace, new_device, put, recover, stage, tree_of

from hcfs.device import MemoryDevice
from hcfs.errors import HcfsError
from hcfs.store import Store
from hcfs.store.check import check

Tree = dict[bytes, tuple[object, ...]]


@dataclass
class Life:
    """A store that lives through random changes; at each flush, and at its end, crashes are tried."""

    rng: random.Random
    device: Crashing
    states: int
    """crash states to try at each flush"""
    again: float = 0.0
    """how often a crash state lives on, and crashes again"""
    moments: list[Tree] = field(default_factory=list)
    """what a user saw, from the last acknowledged commit on"""
    tried: int = 0

    def __post_init__(self) -> None:
        self.store = recover(self.device)
        namespace(self.store)
        self.store.commit()
        self.moments = [tree_of(self.store)]
        self.device.on_crash_point = self.crash

    def live(self, steps: int) -> None:
        for _ in range(steps):
            step(self.store, self.rng)
            self.moments.append(tree_of(self.store))
            kind = self.rng.random()
            if kind < 0.25:
                self.store.commit()
            elif kind < 0.3:
                self.store.checkpoint()
            else:
                continue
            del self.moments[:-1]
        self.crash()

    def crash(self) -> None:
        for state in self.device.states(self.states, self.rng):
            self.tried += 1
            store = recover(MemoryDevice.holding(state))
            assert store.state == "ok", store.state_reason
            found = tree_of(store)
            assert found in self.moments, "neither acknowledged nor a later moment"
            check_space(store)
            if self.rng.random() < self.again:
                other = Life(self.rng, Crashing(self.device.size, durable=state), 2)
                assert other.moments[0].items() >= found.items()
                other.live(5)
                self.tried += other.tried
            else:
                put(store, b"after", b"the crash")
                store.commit()
                assert check(store.device, data=True).clean


def step(store: Store, rng: random.Random) -> None:
    """One change, as a user makes it."""
    kv, name = namespace(store), b"%d" % rng.randrange(6)
    oid = store.lookup(kv, name)
    kind = rng.choice(
        ("put", "put", "put", "unlink", "rename", "evict", "attributes", "extra", "view", "hide", "abandon")
    )
    try:
        if kind == "put":
            put(store, name, content(rng.random(), rng.choice((10, 5000, GRANULE, 3 * GRANULE + 9))))
        elif kind == "abandon":
            staged = stage(store)
            staged.write(0, content(rng.random(), 2 * GRANULE))
            staged.abandon()
        elif kind == "extra":
            # Large ones, so that the log fills up within a life.
            store.set_xattr(kv, b"user.%d" % rng.randrange(3), rng.randbytes(rng.choice((10, 60_000))))
        elif oid is None:
            return
        elif kind == "unlink":
            store.unlink(kv, name)
        elif kind == "rename":
            store.rename(kv, name, kv, b"%d" % rng.randrange(6))
        elif kind == "evict":
            store.evict(oid)
        elif kind == "attributes":
            store.set_attributes(oid, mode=rng.randrange(0o1000), mtime_ns=rng.randrange(1 << 60))
        elif kind == "hide":
            store.quarantine(oid, "test")
        elif kind == "view":
            view = stage(store, oid)
            view.write(rng.randrange(GRANULE), rng.randbytes(100))
            view.seal()
            store.publish(view, kv, name)
    except HcfsError as error:
        raise AssertionError(f"{kind}: {error}") from error


@pytest.mark.parametrize("seed", range(6))
def test_every_crash_leaves_a_moment_since_the_last_commit(seed: int) -> None:
    device = new_device(8 << 20, max_objects=32)
    life = Life(random.Random(seed), Crashing(device.size, durable=device.contents), 3, again=0.1)
    life.live(50)
    assert life.tried > 50
    if life.store.counters.checkpoints:
        assert life.store.ledger.region_generation > 1


def test_crashes_of_a_log_that_fills_up() -> None:
    """The commit that finds no room makes a checkpoint of what isn't durable yet."""
    rng, device = random.Random(7), new_device(8 << 20, max_objects=32)
    life = Life(rng, Crashing(device.size, durable=device.contents), 3)
    kv = namespace(life.store)
    while not life.store.counters.checkpoints:
        for number in range(3):
            life.store.set_xattr(kv, b"user.%d" % number, rng.randbytes(60_000))
            life.moments.append(tree_of(life.store))
        life.store.commit()
        del life.moments[:-1]
    assert life.tried > 10


def test_a_crash_while_recovery_mends() -> None:
    """The log was damaged in the middle: recovery drops what is lost and writes a checkpoint, which a crash may end."""
    rng, device = random.Random(3), new_device(8 << 20, max_objects=32)
    store = recover(device)
    places = []
    for number in range(4):
        assert store.ledger.writer is not None
        places.append(store.superblock.regions[0] * 4096 + store.ledger.writer.at)
        put(store, b"%d" % number, content(number, GRANULE))
        store.commit()
    device.contents[places[2] + 40] ^= 1
    expected = tree_of(recover(MemoryDevice.holding(device.contents), read_only=True))
    assert sorted(expected) == [b"/kv", b"/kv/0", b"/kv/1", b"/kv/3"]
    tried = 0

    def crash() -> None:
        nonlocal tried
        for state in crashing.states(12, rng):
            found = recover(MemoryDevice.holding(state))
            assert tree_of(found) == expected
            check_space(found)
            tried += 1

    crashing = Crashing(device.size, durable=device.contents)
    crashing.on_crash_point = crash
    recover(crashing)
    assert tried >= 20
