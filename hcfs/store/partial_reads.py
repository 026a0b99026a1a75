"""Reading a staged object's whole granules while it is still being written, verified."""

from __future__ import annotations

from hcfs.store.content import Content
from hcfs.store.errors import StagedDamaged
from hcfs.store.staged import Staged
from hcfs.store.superblock import BLOCK

_GENERATION = 0
"""Of what isn't committed, in the cache of granules: no committed object has it, and no id is used twice."""


def read_arrived(store: Content, staged: Staged, offset: int, length: int) -> memoryview:
    """Bytes of an object that is written once, in order: [offset, offset + length), which must lie in granules that are
    written whole. They are read from the device and checked against the checksums that were computed as they were
    written. Blocks, and holds up no writer.

    StagedDamaged when they don't agree; DeviceError; StagedFailed when the object has ended meanwhile, or a granule
    isn't there."""
    granule_bytes, end = store.superblock.granule, offset + length
    first, last = offset // granule_bytes, (end - 1) // granule_bytes
    start = first * granule_bytes
    key = (staged.id, _GENERATION, first)
    partial = first == last and length < granule_bytes
    cached = store.granules.get(key) if partial else None
    if cached is not None:
        view = memoryview(cached)[offset - start : end - start]
    else:
        data = _read_granules(store, staged, first, last)
        if partial:
            store.granules.put(key, bytes(data))
        elif end % granule_bytes:
            # A sequential reader comes back for the rest of the last granule.
            store.granules.put((staged.id, _GENERATION, last), bytes(data[last * granule_bytes - start :]))
        view = data[offset - start : end - start]
    store.counters.read_bytes += length
    return view


def _read_granules(store: Content, staged: Staged, first: int, last: int) -> memoryview:
    granule_bytes = store.superblock.granule
    blocks = granule_bytes // BLOCK
    with staged.reading():
        extents, checksums = staged.whole_granules(first, last)
        buffer = store.pool.acquire((last + 1 - first) * granule_bytes)
        for extent in extents:
            at = (extent.logical - first * blocks) * BLOCK
            store.device.read_into(extent.block * BLOCK, buffer[at : at + extent.count * BLOCK])
        # Its blocks may have become another object's by now: then a wrong checksum is no damage.
        staged.require_not_ended()
    for granule, checksum in enumerate(checksums, first):
        at = (granule - first) * granule_bytes
        if store.checksummer.checksum(staged.id, granule, buffer[at : at + granule_bytes]) != checksum:
            store.counters.checksum_errors += 1
            raise StagedDamaged(
                f"granule {granule} of staged object {staged.id} doesn't match the checksum that it was written with"
            )
    return buffer
