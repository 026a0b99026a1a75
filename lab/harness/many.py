"""Stores with very many small objects, made without a mount: a million in half a minute.

The objects are of zeros, and the image they lie in is sparse: nothing but metadata is written, and every byte verifies
all the same."""

from __future__ import annotations

import random
import stat
from collections.abc import Iterator
from pathlib import Path

from hcfs.device import BufferPool, open_device
from hcfs.store import BLOCK, ROOT_ID, Store, UnrecoveredStore, format_device
from hcfs.store.extents import Extent
from hcfs.store.space import Share
from hcfs.store.table import Row

OBJECT_BYTES = 4096
ROOM = 1.25
"""An image is made for so many times the objects, so that nothing is evicted while more are created."""


def names(seed: int = 1) -> Iterator[bytes]:
    """Names as LMCache gives them, 119 bytes each; the same ones for a seed."""
    numbers = random.Random(seed)
    while True:
        yield b"meta-llama-SEP-Llama-3.1-8B-Instruct@0x00010001@0@%064x.data" % numbers.getrandbits(256)


def format_image(image: Path, objects: int, extra: int = 0) -> Path:
    """A sparse image with an empty store for `objects` and `extra` further ones."""
    limit = int((objects + extra) * ROOM) + 1024
    size = limit * (OBJECT_BYTES + 2 * 400) + (64 << 20)
    with open(image, "wb") as file:
        file.truncate(-(-size // BLOCK) * BLOCK)
    device = open_device(str(image), BufferPool(64 << 20), read_only=False)
    try:
        format_device(device, max_objects=limit)
    finally:
        device.close()
    return image


def open_store(image: Path, *, read_only: bool = False) -> Store:
    """The store of an image; `close` ends it."""
    pool = BufferPool(64 << 20)
    return UnrecoveredStore.open(open_device(str(image), pool, read_only=read_only), pool).recover(read_only)


def fill(image: Path, objects: int) -> None:
    """Put objects into the namespace `kv` of an empty store, and write a checkpoint."""
    store = open_store(image)
    namespace = store.mkdir(ROOT_ID, b"kv", 0o755, 0, 0)
    zeros = bytes(OBJECT_BYTES)
    for number, name in zip(range(objects), names(), strict=False):
        _add(store, namespace, name, zeros)
        if number % 4096 == 0:
            # The checkpoint holds it all; what the log would hold is only memory.
            store.ledger.queue.clear()
    store.ledger.queue.clear()
    store.checkpoint()
    store.close()


def _add(store: Store, namespace: int, name: bytes, content: bytes) -> None:
    with store.ledger.change() as transaction:
        oid, now = store.ledger.new_id(), transaction.time_ns
        runs = store.ledger.space.stage(1)
        assert runs is not None
        store.ledger.space.move(Share.STAGED, Share.USED, 1)
        checksum = store.ledger.checksummer.checksum(oid, 0, content).to_bytes(4, "little")
        extents = (Extent(0, runs[0][0], 1),)
        mode = stat.S_IFREG | 0o644
        sequence = store.ledger.next_sequence
        transaction.put(Row(oid, mode, 0, 0, 0, len(content), now, now, now, sequence, now, extents, checksum, b""))
        transaction.name(namespace, name, oid)
    store.ledger.files += 1
