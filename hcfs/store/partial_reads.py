"""Reading a staged object's whole granules while it is still being written, verified."""

from __future__ import annotations

from typing import NamedTuple

from hcfs.device import BlockDevice, BufferPool
from hcfs.store.content import Content
from hcfs.store.errors import StagedDamaged
from hcfs.store.extents import MAX_LOGICAL
from hcfs.store.staged import Staged
from hcfs.store.superblock import BLOCK


class _Arriving(NamedTuple):
    """A staged object as a source of granules."""

    staged: Staged
    oid: int
    generation: int = 0
    """No committed object has it, and no id is used twice."""
    size: int = MAX_LOGICAL * BLOCK
    """As much as ever: what is read lies in granules that are written whole."""


class PartialReads:
    """Hands out bytes of objects that are written once, in order. Thread-safe."""

    def __init__(self, device: BlockDevice, pool: BufferPool, content: Content) -> None:
        self._device = device
        self._pool = pool
        self._content = content

    def read(self, staged: Staged, offset: int, length: int) -> memoryview:
        """The bytes [offset, offset + length), which must lie in granules that are written whole. They are read from
        the device and checked against the checksums that were computed as they were written. Blocks, and holds up no
        writer.

        StagedDamaged when they don't agree; DeviceError; StagedFailed when the object has ended meanwhile, or a granule
        isn't there."""
        return self._content.cut(_Arriving(staged, staged.id), offset, offset + length, self._read_granules)

    def _read_granules(self, source: _Arriving, first: int, last: int) -> memoryview:
        staged = source.staged
        granule_bytes = staged.granule_bytes
        blocks = granule_bytes // BLOCK
        with staged.reading():
            extents, checksums = staged.whole_granules(first, last)
            buffer = self._pool.acquire((last + 1 - first) * granule_bytes)
            for extent in extents:
                at = (extent.logical - first * blocks) * BLOCK
                self._device.read_into(extent.block * BLOCK, buffer[at : at + extent.count * BLOCK])
            # Its blocks may have become another object's by now: then a wrong checksum is no damage.
            staged.require_not_ended()
        bad = self._content.first_bad(staged.id, first, buffer, checksums)
        if bad is not None:
            raise StagedDamaged(
                f"granule {bad} of staged object {staged.id} doesn't match the checksum that it was written with"
            )
        return buffer
