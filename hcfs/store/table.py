"""The object table: one row an object, as columns.

Columns, because an object each costs CPython 540 bytes and more and makes the garbage collector stop for 0.8 s at a
million; arrays hold no references for it to follow."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress

from hcfs.store.attributes import SLOT_MASK, Flags
from hcfs.store.extents import EXTENT_BYTES, Extent
from hcfs.store.memory import require_memory

ROW_BYTES = 8 + 5 * 4 + 7 * 8 + 4 * 4
"""What a row costs in a checkpoint page before its name, extents, checksums and extra"""


SPARSE = 1 << 20
"""Empty slots up to which nobody asks whether there is memory for them"""
EMPTY_SLOT_BYTES = 200
"""Of memory: the columns here, those of the tree and the cache, and the list of free slots"""


@dataclass(frozen=True, slots=True)
class Row:
    """A whole row. `checksums`: one per granule; bytes, u32 little-endian each."""

    id: int
    mode: int
    uid: int
    gid: int
    flags: int
    size: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int
    generation: int
    last_access_ns: int
    extents: tuple[Extent, ...]
    checksums: bytes
    extra: bytes


class Table:
    """Rows by slot; the slot is the low 32 bits of an object's id. Not thread-safe: the store's lock guards it."""

    def __init__(self, granule_bytes: int) -> None:
        self.granule_bytes = granule_bytes
        self.id = array("Q", [0])
        self.mode = array("I", [0])
        self.uid = array("I", [0])
        self.gid = array("I", [0])
        self.flags = array("I", [0])
        self.crc = array("I", [0])
        """Checksum of the first granule"""
        self.size = array("Q", [0])
        self.atime_ns = array("q", [0])
        self.mtime_ns = array("q", [0])
        self.ctime_ns = array("q", [0])
        self.generation = array("Q", [0])
        self.last_access_ns = array("Q", [0])
        self.first_block = array("Q", [0])
        self.first_count = array("I", [0])
        """Of an object with a single extent at its logical block 0"""
        self.table_at = array("Q", [0])
        """Device offset of the checksums of objects with more than one granule, when `tables` lacks them"""
        self.tables: dict[int, bytes] = {}
        """Checksums, by slot, that no checkpoint holds yet"""
        self.scattered: dict[int, tuple[Extent, ...]] = {}
        """Extents, by slot, of objects that aren't a single run from logical block 0"""
        self.extra: dict[int, bytes] = {}
        self.free_slots: list[int] = []
        self.objects = 0
        self.variable_bytes = 0
        """Encoded bytes of extents, checksums and extras in a checkpoint"""

    _COLUMNS = (
        *("id", "mode", "uid", "gid", "flags", "crc", "size", "atime_ns", "mtime_ns", "ctime_ns"),
        *("generation", "last_access_ns", "first_block", "first_count", "table_at"),
    )

    def __len__(self) -> int:
        """Slots, empty ones and slot 0 included."""
        return len(self.id)

    def grow(self, slots: int) -> None:
        """Make room for slots below `slots`; new ones are empty and not in `free_slots`. TooLittleMemory for very many
        empty ones, which a few bytes on a device can ask for."""
        more = slots - len(self.id)
        if more > 0:
            if slots - self.objects > SPARSE:
                require_memory(slots * EMPTY_SLOT_BYTES)
            for name in self._COLUMNS:
                column = getattr(self, name)
                column.frombytes(bytes(more * column.itemsize))

    def slot(self, oid: int) -> int:
        """The slot of an object, or 0 when it has no row."""
        slot = oid & SLOT_MASK
        return slot if slot < len(self.id) and self.id[slot] == oid and oid else 0

    def take_slot(self) -> int:
        """An empty slot for a new object."""
        if self.free_slots:
            return self.free_slots.pop()
        slot = len(self.id)
        self.grow(slot + 1)
        return slot

    def give_slot(self, slot: int) -> None:
        """Return a slot that `take_slot` gave and that has no row."""
        self.free_slots.append(slot)

    def rebuild_free_slots(self) -> None:
        """After recovery: every empty slot but 0."""
        self.free_slots = [slot for slot in range(len(self.id) - 1, 0, -1) if not self.id[slot]]

    def put(self, row: Row) -> None:
        """Set the whole row; a former row in its slot goes."""
        slot = row.id & SLOT_MASK
        self.grow(slot + 1)
        if self.id[slot]:
            self.clear(slot)
        self.id[slot] = row.id
        self.mode[slot] = row.mode
        self.uid[slot] = row.uid
        self.gid[slot] = row.gid
        self.flags[slot] = row.flags
        self.size[slot] = row.size
        self.atime_ns[slot] = row.atime_ns
        self.mtime_ns[slot] = row.mtime_ns
        self.ctime_ns[slot] = row.ctime_ns
        self.generation[slot] = row.generation
        self.last_access_ns[slot] = row.last_access_ns
        self.crc[slot] = int.from_bytes(row.checksums[:4], "little")
        if len(row.checksums) > 4:
            self.tables[slot] = row.checksums
        self.set_extents(slot, row.extents)
        if row.extra:
            self.extra[slot] = row.extra
        self.objects += 1
        self.variable_bytes += self.variable(slot)

    def set_extents(self, slot: int, extents: tuple[Extent, ...]) -> None:
        """Extents of a row that has none yet."""
        if len(extents) == 1 and extents[0].logical == 0:
            self.first_block[slot] = extents[0].block
            self.first_count[slot] = extents[0].count
        elif extents:
            self.scattered[slot] = extents

    def clear(self, slot: int) -> None:
        """Empty the slot; it isn't given back to `free_slots`."""
        self.variable_bytes -= self.variable(slot)
        self.id[slot] = self.size[slot] = self.first_count[slot] = self.table_at[slot] = 0
        self.tables.pop(slot, None)
        self.scattered.pop(slot, None)
        self.extra.pop(slot, None)
        self.objects -= 1

    def strip(self, slot: int) -> None:
        """Take a row's extents away, for recovery of rows whose extents can't be right."""
        self.variable_bytes -= self.variable(slot)
        self.first_count[slot] = 0
        self.scattered.pop(slot, None)
        self.variable_bytes += self.variable(slot)

    def extents(self, slot: int) -> tuple[Extent, ...]:
        if self.first_count[slot]:
            return (Extent(0, self.first_block[slot], self.first_count[slot]),)
        return self.scattered.get(slot, ())

    def blocks(self, slot: int) -> int:
        """Blocks that the object's extents occupy."""
        if self.first_count[slot]:
            return self.first_count[slot]
        return sum(e.count for e in self.scattered.get(slot, ()))

    def granules(self, slot: int) -> int:
        """How many granules the object's bytes are split into."""
        return -(-self.size[slot] // self.granule_bytes)

    def set_extra(self, slot: int, extra: bytes) -> None:
        old = self.extra.pop(slot, b"")
        if extra:
            self.extra[slot] = extra
        self.variable_bytes += len(extra) - len(old)

    def slots(self, first: int = 1) -> Iterator[int]:
        """Slots with a row, from `first` on; safe against changes meanwhile."""
        ids = self.id
        at = max(1, first)
        while at < len(ids):
            if ids[at]:
                yield at
            at += 1

    def quarantined_slots(self) -> list[int]:
        """Slots of quarantined objects: walks the column, for the start of a mount."""
        flagged = compress(range(len(self.flags)), self.flags)
        return [slot for slot in flagged if self.id[slot] and self.flags[slot] & Flags.QUARANTINED]

    def variable(self, slot: int) -> int:
        """Encoded bytes of a row's extents, checksums and extra in a checkpoint."""
        extents = 1 if self.first_count[slot] else len(self.scattered.get(slot, ()))
        granules = self.granules(slot)
        return extents * EXTENT_BYTES + (4 * granules if granules > 1 else 0) + len(self.extra.get(slot, b""))
