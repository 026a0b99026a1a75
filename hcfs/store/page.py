"""Checkpoint pages: rows as columns. Format: docs/format.md, "Checkpoint page payload"."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hcfs.store.attributes import SLOT_MASK, Extra, is_name
from hcfs.store.errors import CorruptMetadata
from hcfs.store.extents import EXTENT_BYTES, decode_extents, encode_extents
from hcfs.store.items import Index
from hcfs.store.table import ROW_BYTES

_HEAD = struct.Struct("<II")
_COLUMNS_32 = ("mode", "uid", "gid", "flags", "crc")
_COLUMNS_64 = ("size", "atime_ns", "mtime_ns", "ctime_ns", "generation", "last_access_ns")
PAGE_ROWS = 1024
PAGE_BYTES = 1 << 20
"""a page ends before a row that would make it longer; a single longer row has a page of its own"""


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
    """bytes, or (device offset, length) to be read"""
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


def draft(index: Index, first_slot: int) -> PageDraft:
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
    parts = [_HEAD.pack(len(slots), 0)]
    parts += [_gather(getattr(table, column), slots).tobytes() for column in ("id", *_COLUMNS_32, *_COLUMNS_64)]
    parts += [parents.tobytes(), *(column.tobytes() for column in lengths), bytes(names), bytes(extents)]
    return PageDraft(b"".join(parts), checksums, owners, bytes(extras), slot)


def _gather(column: array[int], slots: list[int]) -> array[int]:
    if slots and slots[-1] - slots[0] + 1 == len(slots):
        return column[slots[0] : slots[-1] + 1]
    return array(column.typecode, [column[slot] for slot in slots])


def _scatter(column: array[int], slots: list[int], values: array[int]) -> None:
    if slots and slots[-1] - slots[0] + 1 == len(slots):
        column[slots[0] : slots[-1] + 1] = values
        return
    for slot, value in zip(slots, values, strict=True):
        column[slot] = value


@dataclass(frozen=True, slots=True)
class PageNames:
    """Names of a page's rows, to be added when all rows of the checkpoint are there."""

    entries: list[tuple[int, bytes, int]]
    """(parent id, name, slot)"""


def load(payload: memoryview, device_offset: int, index: Index) -> PageNames:
    """Put a page's rows into the index; `device_offset` is where the payload starts on the device. Raises
    CorruptMetadata."""
    try:
        return _load(payload, device_offset, index)
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise CorruptMetadata(f"a checkpoint page makes no sense: {error}") from error


def _load(payload: memoryview, device_offset: int, index: Index) -> PageNames:
    table = index.table
    rows, _ = _HEAD.unpack_from(payload)
    if rows > PAGE_ROWS:
        raise ValueError(f"page of {rows} rows")
    at = _HEAD.size

    def column(typecode: str) -> array[int]:
        nonlocal at
        values: array[int] = array(typecode)
        length = rows * values.itemsize
        if at + length > len(payload):
            raise ValueError("a column ends behind its page")
        values.frombytes(payload[at : at + length])
        at += length
        return values

    ids = column("Q")
    slots = [oid & SLOT_MASK for oid in ids]
    if any(a >= b for a, b in zip([0, *slots], slots, strict=False)) or (slots and slots[-1] > index.max_slot):
        raise ValueError("the slots of a page's rows don't ascend, or are impossible")
    table.grow(slots[-1] + 1 if slots else 1)
    _scatter(table.id, slots, ids)
    for name in _COLUMNS_32 + _COLUMNS_64:
        target = getattr(table, name)
        _scatter(target, slots, column(target.typecode))
    parents = column("Q")
    name_bytes, n_extents, n_granules, extra_bytes = (column("I") for _ in range(4))
    names: list[tuple[int, bytes, int]] = []

    def take(length: int) -> bytes:
        nonlocal at
        if at + length > len(payload):
            raise ValueError("a row ends behind its page")
        at += length
        return bytes(payload[at - length : at])

    for slot, parent, length in zip(slots, parents, name_bytes, strict=True):
        name_value = take(length)
        if parent:
            if not is_name(name_value):
                raise ValueError(f"{name_value!r} can't be a name")
            names.append((parent, name_value, slot))
    for slot, count in zip(slots, n_extents, strict=True):
        if count:
            table.set_extents(slot, decode_extents(take(count * EXTENT_BYTES)))
    for slot, count in zip(slots, n_granules, strict=True):
        if count != table.granules(slot):
            raise ValueError(f"object {table.id[slot]} of {table.size[slot]} bytes with {count} granules")
        if count > 1:
            table.table_at[slot] = device_offset + at
            take(count * 4)
    for slot, length in zip(slots, extra_bytes, strict=True):
        if not length:
            continue
        extra = Extra.decode(take(length))
        if not all(is_name(link) for _, link in extra.links):
            raise ValueError(f"object {table.id[slot]} has an impossible name")
        names.extend((parent, link, slot) for parent, link in extra.links)
        extra.links.clear()
        encoded = extra.encode()
        if encoded:
            table.extra[slot] = encoded
    for slot, oid in zip(slots, ids, strict=True):
        table.objects += 1
        table.variable_bytes += table.variable(slot)
        index.next_serial = max(index.next_serial, (oid >> 32) + 1)
    return PageNames(names)
