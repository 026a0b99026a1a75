"""Reading checkpoint pages back into the index. Format: docs/format.md, "Checkpoint page payload".

A mount waits for this, and a million rows taken one by one take 4 s: what all rows of a page have in common is done for
the whole page."""

from __future__ import annotations

import stat
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, pairwise

from hcfs.store.attributes import NAME_MAX, SLOT_MASK, Extra, is_name
from hcfs.store.errors import CorruptMetadata
from hcfs.store.extents import EXTENT_BYTES, decode_extents
from hcfs.store.page import COLUMNS_32, COLUMNS_64, HEAD, PAGE_ROWS, Run, runs_of
from hcfs.store.transactions import MetadataIndex
from hcfs.store.tree import ROOT_SLOT


@dataclass(frozen=True, slots=True)
class PageNames:
    """Names of a page's rows."""

    slots: list[int]
    parents: array[int]
    """Id of the directory of each row's first name; 0: it has none"""
    names: list[bytes]
    links: list[tuple[int, bytes, int]]
    """(parent id, name, slot) of the further names"""
    files: bool
    """None of the rows is a directory"""

    @property
    def entries(self) -> list[tuple[int, bytes, int]]:
        """(parent id, name, slot) of every name."""
        rows = zip(self.parents, self.names, self.slots, strict=True)
        return [(parent, name, slot) for parent, name, slot in rows if parent] + self.links


class NameLoader:
    """Adds the names of one page after the other. A row whose directory comes in a later page waits for it, and where
    two claim one name, the one in the later page has it."""

    def __init__(self, index: MetadataIndex) -> None:
        self._index = index
        self._waiting: list[tuple[int, bytes, int]] = []
        self._links: list[tuple[int, bytes, int]] = []

    def add(self, page: PageNames) -> None:
        """Add the names of a page whose rows are in the index."""
        table, tree = self._index.table, self._index.tree
        self._links += page.links
        parents = set(page.parents)
        if len(parents) == 1 and page.files:
            parent = table.slot(parents.pop())
            if parent and tree.load(parent, page.names, runs_of(page.slots)):
                return
        for parent_id, name, slot in zip(page.parents, page.names, page.slots, strict=True):
            if not parent_id or slot == ROOT_SLOT:
                continue
            parent = table.slot(parent_id)
            if parent:
                self._index.add_name(parent, name, slot)
            else:
                self._waiting.append((parent_id, name, slot))

    def finish(self) -> None:
        """Add what waits; all pages are loaded."""
        table, tree = self._index.table, self._index.tree
        for parent_id, name, slot in self._waiting:
            parent = table.slot(parent_id)
            if parent and not tree.lookup(parent, name):
                self._index.add_name(parent, name, slot)
        for parent_id, name, slot in self._links:
            parent = table.slot(parent_id)
            if parent and slot != ROOT_SLOT:
                self._index.add_name(parent, name, slot)


def load(payload: memoryview, device_offset: int, index: MetadataIndex) -> PageNames:
    """Put a page's rows into the index, their names apart; `device_offset` is where the payload starts on the device.
    Raises CorruptMetadata."""
    try:
        return _load(payload, device_offset, index)
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise CorruptMetadata(f"a checkpoint page makes no sense: {error}") from error


class _Cursor:
    """A place in a page's payload."""

    def __init__(self, payload: memoryview) -> None:
        self._payload = payload
        self.at = HEAD.size

    def take(self, length: int) -> bytes:
        if self.at + length > len(self._payload):
            raise ValueError("a column or row ends behind its page")
        self.at += length
        return bytes(self._payload[self.at - length : self.at])

    def column(self, typecode: str, rows: int) -> array[int]:
        values: array[int] = array(typecode)
        values.frombytes(self.take(rows * values.itemsize))
        return values


def _scatter(column: array[int], runs: list[Run], values: array[int]) -> None:
    for slot, index, count in runs:
        column[slot : slot + count] = values[index : index + count]


def _load(payload: memoryview, device_offset: int, index: MetadataIndex) -> PageNames:
    table, cursor = index.table, _Cursor(payload)
    rows, _ = HEAD.unpack_from(payload)
    if rows > PAGE_ROWS:
        raise ValueError(f"page of {rows} rows")
    ids = cursor.column("Q", rows)
    slots = [oid & SLOT_MASK for oid in ids]
    if any(a >= b for a, b in pairwise([0, *slots])) or (slots and (slots[-1] > index.max_slot or max(ids) >> 63)):
        raise ValueError("the slots of a page's rows don't ascend, or their ids are impossible")
    table.grow(slots[-1] + 1 if slots else 1)
    runs = runs_of(slots)
    _scatter(table.id, runs, ids)
    columns: dict[str, array[int]] = {}
    for name in COLUMNS_32 + COLUMNS_64:
        target = getattr(table, name)
        columns[name] = cursor.column(target.typecode, rows)
        _scatter(target, runs, columns[name])
    parents = cursor.column("Q", rows)
    name_bytes, n_extents, n_granules, extra_bytes = (cursor.column("I", rows) for _ in range(4))
    names = _names(cursor.take(sum(name_bytes)), name_bytes, parents)
    _extents(index, slots, runs, n_extents, cursor.take(sum(n_extents) * EXTENT_BYTES))
    granule = table.granule_bytes
    if [-(-size // granule) for size in columns["size"]] != n_granules.tolist():
        raise ValueError("the sizes of a page's rows don't fit their granules")
    checksums = 0
    for slot, count in zip(slots, n_granules, strict=True):
        if count > 1:
            table.table_at[slot] = device_offset + cursor.at
            cursor.take(count * 4)
            checksums += count * 4
    links: list[tuple[int, bytes, int]] = []
    extras = 0
    for slot, length in compress(zip(slots, extra_bytes, strict=True), extra_bytes):
        extra = Extra.decode(cursor.take(length))
        if not all(is_name(link) for _, link in extra.links):
            raise ValueError(f"object {table.id[slot]} has an impossible name")
        links.extend((parent, link, slot) for parent, link in extra.links)
        extra.links.clear()
        encoded = extra.encode()
        extras += len(encoded)
        if encoded:
            table.extra[slot] = encoded
    table.objects += rows
    table.variable_bytes += sum(n_extents) * EXTENT_BYTES + checksums + extras
    if rows:
        index.next_serial = max(index.next_serial, (max(ids) >> 32) + 1)
    files = not any(stat.S_ISDIR(mode) for mode in set(columns["mode"]))
    return PageNames(slots, parents, names, links, files)


def _names(blob: bytes, lengths: array[int], parents: array[int]) -> list[bytes]:
    """The first name of each row. ValueError for one that can't be a name."""
    ends = list(accumulate(lengths, initial=0))
    names = [blob[start:end] for start, end in pairwise(ends)]
    # As `is_name`; only names of one byte or two can be those of the directory itself or its parent.
    usual = b"/" not in blob and b"\0" not in blob and min(lengths, default=0) > 2 and max(lengths) <= NAME_MAX
    if not usual:
        for name, parent in zip(names, parents, strict=True):
            if parent and not is_name(name):
                raise ValueError(f"{name!r} can't be a name")
    return names


def _extents(index: MetadataIndex, slots: Sequence[int], runs: list[Run], counts: array[int], blob: bytes) -> None:
    table = index.table
    words = memoryview(blob).cast("I")
    if set(counts) == {1} and not any(words[0::4]):
        # One extent from the beginning each, as nearly all objects have: logical u32, count u32, block u64.
        _scatter(table.first_count, runs, array("I", words[1::4].tolist()))
        _scatter(table.first_block, runs, array("Q", memoryview(blob).cast("Q")[1::2].tolist()))
        return
    at = 0
    for slot, count in zip(slots, counts, strict=True):
        if count:
            table.set_extents(slot, decode_extents(blob[at : at + count * EXTENT_BYTES]))
            at += count * EXTENT_BYTES
