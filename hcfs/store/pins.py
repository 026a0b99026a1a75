"""Pins: what keeps an object readable while somebody has it open."""

from __future__ import annotations

from collections.abc import Callable

from hcfs.store.extents import Extent
from hcfs.store.table import Table


class Pin:
    """Keeps an object's extents from reuse, and reads of it possible, whatever happens to its names.

    `size` in bytes. Released once, by `release`; a pin that is never released keeps its space pending."""

    __slots__ = ("_give_up", "_released", "checksums", "extents", "generation", "oid", "size")

    def __init__(self, table: Table, slot: int, give_up: Callable[[Pin], None]) -> None:
        """give_up: what `release` calls."""
        self._give_up = give_up
        self._released = False
        self.oid = table.id[slot]
        self.size = table.size[slot]
        self.generation = table.generation[slot]
        self.extents = table.extents(slot)
        self.checksums: bytes | tuple[int, int]
        """Of the granules, u32 little-endian each; or (device offset, length) while they are only on the medium"""
        granules = table.granules(slot)
        if granules <= 1:
            self.checksums = table.crc[slot].to_bytes(4, "little") if granules else b""
        else:
            self.checksums = table.tables.get(slot) or (table.table_at[slot], granules * 4)

    def release(self) -> None:
        """Give the pin up; idempotent."""
        self._give_up(self)

    def mark_released(self) -> bool:
        """Whether this call was the first; the caller holds the store's lock."""
        first, self._released = not self._released, True
        return first


class SealedPin(Pin):
    """Reads what was sealed and isn't published, verified as a published object is. It keeps nothing: bytes that are
    written or freed meanwhile don't verify any more."""

    __slots__ = ()

    def __init__(self, oid: int, size: int, extents: tuple[Extent, ...], checksums: bytes, number: int) -> None:
        """number: of this sealing, among all of the object's."""
        self._give_up = _nothing
        self._released = False
        self.oid, self.size, self.extents, self.checksums = oid, size, extents, checksums
        self.generation = -1 - number


def _nothing(_: Pin) -> None:
    pass
