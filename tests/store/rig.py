"""Small stores in memory, and what is always true of one."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

from hcfs.device import BufferPool, MemoryDevice
from hcfs.device.protocol import BlockDevice
from hcfs.store import BLOCK, ROOT_ID, Staged, Store, UnrecoveredStore, format_device

GRANULE = 64 << 10
UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
T = TypeVar("T")


def new_device(size: int = 12 << 20, *, granule: int = GRANULE, max_objects: int = 64) -> MemoryDevice:
    """A formatted device: regions of 1 MiB and a little more."""
    device = MemoryDevice(size)
    format_device(device, granule=granule, max_objects=max_objects, uuid=UUID)
    return device


def recover(device: BlockDevice, *, pool: int = 4 << 20, read_only: bool = False) -> Store:
    return UnrecoveredStore.open(device, BufferPool(pool)).recover(read_only)


def new_store(size: int = 12 << 20, *, granule: int = GRANULE, max_objects: int = 64) -> Store:
    return recover(new_device(size, granule=granule, max_objects=max_objects))


def again(store: Store) -> Store:
    """The store as the next mount finds it after a crash now: nothing is committed first."""
    return recover(store.device)


def namespace(store: Store, name: bytes = b"kv") -> int:
    """A directory at the root, made where it is absent; threads may ask for it at once."""
    with store.atomically():
        found = store.lookup(ROOT_ID, name)
        return store.mkdir(ROOT_ID, name, 0o755, 0, 0) if found is None else found


def stage(store: Store, base: int | None = None, **more: object) -> Staged:
    values = {"namespace": namespace(store), "mode": 0o644, "uid": 1000, "gid": 1000} | more
    return store.stage(base, **values)  # type: ignore[arg-type]


def put(store: Store, name: bytes, data: bytes | bytearray, *, parent: int | None = None) -> int:
    """Write and publish an object; its id."""
    staged = stage(store)
    staged.write(0, data)
    staged.seal()
    return store.publish(staged, namespace(store) if parent is None else parent, name)


def get(store: Store, oid: int, step: int = 1 << 20) -> bytes:
    """The whole object's bytes, verified."""
    pin = store.pin(oid)
    try:
        return b"".join(bytes(store.read(pin, at, step)) for at in range(0, pin.size, step))
    finally:
        pin.release()


def named(store: Store, name: bytes) -> bytes | None:
    """The bytes under a name of the namespace kv, or None."""
    oid = store.lookup(namespace(store), name)
    return None if oid is None else get(store, oid)


def content(seed: object, length: int) -> bytes:
    return random.Random(repr(seed)).randbytes(length)


def tree_of(store: Store) -> dict[bytes, tuple[object, ...]]:
    """Everything that a user can see, by path; directories' times and recency are left out."""
    seen: dict[bytes, tuple[object, ...]] = {}

    def walk(directory: int, path: bytes) -> None:
        for name, oid in store.list_directory(directory):
            a = store.attributes(oid)
            xattrs = tuple(sorted((key, store.get_xattr(oid, key)) for key in store.list_xattrs(oid)))
            body: object = None
            if a.kind == 1:
                body = get(store, oid)
            elif a.kind == 3:
                body = store.readlink(oid)
            seen[path + b"/" + name] = (oid, a.mode, a.uid, a.gid, a.nlink, a.size, a.mtime_ns, xattrs, body)
            if a.kind == 2:
                walk(oid, path + b"/" + name)

    walk(ROOT_ID, b"")
    return seen


def check_space(store: Store, *staged: Staged) -> None:
    """Every block of the data area is free, or belongs to one owner; the shares say so. `staged`: all there are."""
    usage = store.usage()
    assert usage.used + usage.free + usage.staged + usage.pending + usage.quarantined == usage.capacity
    with store.atomically():
        table, runs = store.ledger.index.table, []
        committed = {
            oid: [(e.block, e.count) for e in table.extents(table.slot(oid))]
            for oid in [table.id[slot] for slot in table.slots()]
        }
        for own in committed.values():
            runs += own
        quarantined = sum(n for oid, own in committed.items() if store.removals.is_quarantined(oid) for _, n in own)
        assert usage.quarantined == quarantined * BLOCK
        assert usage.used == sum(n for own in committed.values() for _, n in own) * BLOCK - usage.quarantined
        held = [run for s in staged if not s.ended for run in s._windows.runs()]
        assert usage.staged == sum(n for _, n in held) * BLOCK
        pending = [run for _, own in store.retention.freed for run in own]
        pending += [run for own in store.retention._parked.values() for run in own]
        assert usage.pending == sum(n for _, n in pending) * BLOCK
        runs += held + pending + store.ledger.space.allocator.free_runs()
        at = store.superblock.data_start
        for block, count in sorted(runs):
            assert block == at, f"blocks from {min(at, block)} on have no owner, or two"
            at += count
        assert at == store.superblock.data_start + store.superblock.data_blocks
        pinned = sum(
            table.blocks(table.slot(oid))
            for oid in store.retention._pins
            if table.slot(oid) and not store.removals.is_quarantined(oid)
        )
        assert usage.pinned_used == pinned * BLOCK


def in_thread(function: Callable[[], T]) -> Future[T]:
    """Run in a thread; the future's result waits for it."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future
