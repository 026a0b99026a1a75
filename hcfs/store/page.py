"""Making checkpoint pages: rows as columns. Format: docs/format.md, "Checkpoint page payload"."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from hcfs.store.attributes import Extra
from hcfs.store.extents import EXTENT_BYTES, encode_extents
from hcfs.store.table import ROW_BYTES
from hcfs.store.transactions import MetadataIndex

HEAD = struct.Struct("<II")
COLUMNS_32 = ("mode", "uid", "gid", "flags", "crc")
COLUMNS_64 = ("size", "atime_ns", "mtime_ns", "ctime_ns", "generation", "last_access_ns")
PAGE_ROWS = 1024
PAGE_BYTES = 1 << 20
"""A page ends before a row that would make it longer; a single longer row has a page of its own"""

Run = tuple[int, int, int]
"""(first slot, its row's index in the page, rows): neighbours in both"""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where in a payload the checksums of an object stand."""

    slot: int
    oid: int
    generation: int
    offset: int


class Placements:
    """Where on the device the checksums of objects stand: columns, since an object each would be for the garbage
    collector to follow."""

    def __init__(self) -> None:
        self._slots = array("I")
        self._oids = array("Q")
        self._generations = array("Q")
        self._offsets = array("Q")

    def add(self, placed: list[Placed], payload_at: int) -> None:
        """Note those of a page whose payload starts at a device offset."""
        self._slots.extend(p.slot for p in placed)
        self._oids.extend(p.oid for p in placed)
        self._generations.extend(p.generation for p in placed)
        self._offsets.extend(payload_at + p.offset for p in placed)

    def pieces(self) -> Iterator[Iterator[tuple[int, int, int, int]]]:
        """(slot, oid, generation, device offset) each, in pieces of a page's rows."""
        columns = (self._slots, self._oids, self._generations, self._offsets)
        for first in range(0, len(self._slots), PAGE_ROWS):
            yield zip(*(column[first : first + PAGE_ROWS] for column in columns), strict=True)


@dataclass(slots=True)
class PageDraft:
    """A page whose checksums are still partly on the medium; `head` and `tail` are encoded."""

    head: bytes
    checksums: list[bytes | tuple[int, int]]
    """Bytes, or (device offset, length) to be read"""
    owners: list[tuple[int, int, int]]
    """(slot, oid, generation), one for each of `checksums`"""
    tail: bytes
    next_slot: int

    def finish(self, read: Callable[[int, int], bytes]) -> tuple[bytes, list[Placed]]:
        """The payload, and where each object's checksums stand in it. `read(offset, length)` may block and raise
        DeviceError."""
        at = len(self.head)
        placed, parts = [], [self.head]
        for (slot, oid, generation), source in zip(self.owners, self.checksums, strict=True):
            data = source if isinstance(source, bytes) else read(*source)
            placed.append(Placed(slot, oid, generation, at))
            parts.append(data)
            at += len(data)
        parts.append(self.tail)
        return b"".join(parts), placed


def draft(index: MetadataIndex, first_slot: int) -> PageDraft:
    """Take the rows from `first_slot` on, as many as fit a page. Memory only; the caller holds the store's lock."""
    table, tree = index.table, index.tree
    names, extents, extras = bytearray(), bytearray(), bytearray()
    lengths: tuple[array[int], ...] = tuple(array("I") for _ in range(4))
    parents = array("Q")
    checksums: list[bytes | tuple[int, int]] = []
    owners = []
    budget = PAGE_BYTES
    slots: list[int] = []
    slot = first_slot
    while slot < len(table) and len(slots) < PAGE_ROWS:
        if not table.id[slot]:
            slot += 1
            continue
        own_names = tree.names(slot)
        name = own_names[0][1] if own_names else b""
        own_extents = table.extents(slot)
        extra = table.extra.get(slot, b"")
        if len(own_names) > 1:
            extra += Extra(links=[(table.id[parent], link) for parent, link in own_names[1:]]).encode()
        granules = table.granules(slot)
        budget -= ROW_BYTES + len(name) + len(own_extents) * EXTENT_BYTES + len(extra)
        budget -= granules * 4 if granules > 1 else 0
        if budget < 0 and slots:
            break
        parents.append(table.id[own_names[0][0]] if own_names else 0)
        if granules > 1:
            recent = table.tables.get(slot)
            checksums.append(recent if recent is not None else (table.table_at[slot], granules * 4))
            owners.append((slot, table.id[slot], table.generation[slot]))
        for column, length in zip(lengths, (len(name), len(own_extents), granules, len(extra)), strict=True):
            column.append(length)
        names += name
        extents += encode_extents(own_extents)
        extras += extra
        slots.append(slot)
        slot += 1
    parts, runs = [HEAD.pack(len(slots), 0)], runs_of(slots)
    parts += [_gather(getattr(table, column), runs).tobytes() for column in ("id", *COLUMNS_32, *COLUMNS_64)]
    parts += [parents.tobytes(), *(column.tobytes() for column in lengths), bytes(names), bytes(extents)]
    return PageDraft(b"".join(parts), checksums, owners, bytes(extras), slot)


def _gather(column: array[int], runs: list[Run]) -> array[int]:
    values: array[int] = array(column.typecode)
    for slot, _, count in runs:
        values += column[slot : slot + count]
    return values


def runs_of(slots: list[int]) -> list[Run]:
    """Ascending slots as runs of neighbours, which columns are copied by."""
    breaks = [index for index, (a, b) in enumerate(pairwise(slots), 1) if b - a != 1]
    starts = [0, *breaks] if slots else []
    return [(slots[a], a, b - a) for a, b in zip(starts, [*breaks, len(slots)], strict=False)]
