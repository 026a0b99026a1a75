"""Transactions: what the log's records say. Format: docs/format.md, "Transaction payload".

The same code changes the tables for a call and for the log's replay: a call builds a `Transaction`, whose every method
applies an item to the index and appends its encoding."""

from __future__ import annotations

import stat
import struct
from typing import Protocol

from hcfs.store.attributes import MAX_SLOT, ROOT_ID, SLOT_MASK, Extra, is_name
from hcfs.store.errors import CorruptMetadata
from hcfs.store.extents import EXTENT_BYTES, decode_extents, encode_extents
from hcfs.store.frame import MAX_COUNT
from hcfs.store.table import ROW_BYTES, Row, Table
from hcfs.store.tree import Tree

OBJECT, NAME, UNNAME, DROP, ATTRIBUTES, EXTRA, TOUCH, SERIAL = range(1, 9)

_TIME = struct.Struct("<Q")
_OBJECT = struct.Struct("<BQIIIIQqqqQQIII")
_NAME = struct.Struct("<BQQH")
_UNNAME = struct.Struct("<BQH")
_DROP = struct.Struct("<BQ")
_ATTRIBUTES = struct.Struct("<BQIIIIqqq")
_EXTRA = struct.Struct("<BQI")
_TOUCH = struct.Struct("<BI")
_TOUCHED = struct.Struct("<QQ")
_SERIAL = struct.Struct("<BQ")
OBJECT_BYTES = _OBJECT.size


class Target(Protocol):
    """What a transaction's items are applied to: the index, or something that only writes them down."""

    next_serial: int

    def put(self, row: Row) -> None: ...

    def name(self, parent: int, name: bytes, oid: int, time_ns: int) -> None: ...

    def unname(self, parent: int, name: bytes, time_ns: int) -> None: ...

    def drop(self, oid: int) -> None: ...

    def attributes(
        self, oid: int, mode: int, uid: int, gid: int, flags: int, atime: int, mtime: int, ctime: int
    ) -> None: ...

    def extra(self, oid: int, extra: bytes) -> None: ...

    def touch(self, oid: int, last_access_ns: int) -> None: ...


class MetadataIndex:
    """The tables that transactions change. Applying an item twice, or to a state that has it, changes nothing."""

    def __init__(self, granule_bytes: int, max_slot: int = MAX_SLOT) -> None:
        self.max_slot = max_slot
        self.table = Table(granule_bytes)
        self.tree = Tree(self.table)
        self.next_serial = 1
        """Serials from here on were never in use"""

    @property
    def checkpoint_bytes(self) -> int:
        """About what a checkpoint of this state takes, frames apart."""
        return self.table.objects * ROW_BYTES + self.table.variable_bytes + self.tree.encoded_bytes

    def put(self, row: Row) -> None:
        """ValueError for a row that can't be."""
        slot = row.id & SLOT_MASK
        if not 0 < slot <= self.max_slot or row.id >> 63:
            raise ValueError(f"object {row.id} has an impossible id")
        if len(row.checksums) // 4 != -(-row.size // self.table.granule_bytes):
            raise ValueError(f"object {row.id} of {row.size} bytes has {len(row.checksums) // 4} checksums")
        former = self.table.id[slot] if slot < len(self.table) else 0
        if former and former != row.id:
            self.tree.forget(slot)
        self.table.put(row)
        self.next_serial = max(self.next_serial, (row.id >> 32) + 1)

    def name(self, parent: int, name: bytes, oid: int, time_ns: int) -> None:
        parent_slot, slot = self.table.slot(parent), self.table.slot(oid)
        if parent_slot and slot and oid != ROOT_ID:
            self.add_name(parent_slot, name, slot)
            self.table.ctime_ns[slot] = time_ns
            self._directory_changed(parent_slot, time_ns)

    def add_name(self, parent_slot: int, name: bytes, slot: int) -> None:
        """Let a name lead to a slot. A directory has one name: the record that took its former one away may have been
        lost."""
        if stat.S_ISDIR(self.table.mode[slot]):
            for former_parent, former in self.tree.names(slot):
                if (former_parent, former) != (parent_slot, name):
                    self.tree.remove(former_parent, former)
        self.tree.add(parent_slot, name, slot)

    def unname(self, parent: int, name: bytes, time_ns: int) -> None:
        parent_slot = self.table.slot(parent)
        if parent_slot:
            slot = self.tree.remove(parent_slot, name)
            if slot:
                self.table.ctime_ns[slot] = time_ns
            self._directory_changed(parent_slot, time_ns)

    def _directory_changed(self, slot: int, time_ns: int) -> None:
        self.table.mtime_ns[slot] = self.table.ctime_ns[slot] = time_ns

    def drop(self, oid: int) -> None:
        slot = self.table.slot(oid)
        if slot:
            self.tree.forget(slot)
            self.table.clear(slot)

    def attributes(
        self, oid: int, mode: int, uid: int, gid: int, flags: int, atime: int, mtime: int, ctime: int
    ) -> None:
        slot = self.table.slot(oid)
        if slot:
            table = self.table
            table.mode[slot], table.uid[slot], table.gid[slot], table.flags[slot] = mode, uid, gid, flags
            table.atime_ns[slot], table.mtime_ns[slot], table.ctime_ns[slot] = atime, mtime, ctime

    def extra(self, oid: int, extra: bytes) -> None:
        slot = self.table.slot(oid)
        if slot:
            self.table.set_extra(slot, extra)

    def touch(self, oid: int, last_access_ns: int) -> None:
        slot = self.table.slot(oid)
        if slot:
            self.table.last_access_ns[slot] = max(self.table.last_access_ns[slot], last_access_ns)


class Transaction:
    """Builds a transaction's payload, and applies each item to the index as it is added."""

    def __init__(self, index: MetadataIndex, time_ns: int) -> None:
        self._index = index
        self.time_ns = time_ns
        self.payload = bytearray(_TIME.pack(time_ns))

    @property
    def empty(self) -> bool:
        """Whether no item was added yet."""
        return len(self.payload) == _TIME.size

    def put(self, row: Row) -> None:
        self.payload += _OBJECT.pack(
            *(
                OBJECT,
                row.id,
                row.mode,
                row.uid,
                row.gid,
                row.flags,
                row.size,
                row.atime_ns,
                row.mtime_ns,
                row.ctime_ns,
            ),
            *(row.generation, row.last_access_ns, len(row.extents), len(row.checksums) // 4, len(row.extra)),
        )
        self.payload += encode_extents(row.extents) + row.checksums + row.extra
        self._index.put(row)

    def name(self, parent: int, name: bytes, oid: int) -> None:
        self.payload += _NAME.pack(NAME, parent, oid, len(name)) + name
        self._index.name(parent, name, oid, self.time_ns)

    def unname(self, parent: int, name: bytes) -> None:
        self.payload += _UNNAME.pack(UNNAME, parent, len(name)) + name
        self._index.unname(parent, name, self.time_ns)

    def drop(self, oid: int) -> None:
        self.payload += _DROP.pack(DROP, oid)
        self._index.drop(oid)

    def attributes(
        self, oid: int, mode: int, uid: int, gid: int, flags: int, atime: int, mtime: int, ctime: int
    ) -> None:
        self.payload += _ATTRIBUTES.pack(ATTRIBUTES, oid, mode, uid, gid, flags, atime, mtime, ctime)
        self._index.attributes(oid, mode, uid, gid, flags, atime, mtime, ctime)

    def extra(self, oid: int, extra: Extra) -> None:
        encoded = extra.encode()
        self.payload += _EXTRA.pack(EXTRA, oid, len(encoded)) + encoded
        self._index.extra(oid, encoded)

    def touch(self, accesses: dict[int, int]) -> None:
        self.payload += _TOUCH.pack(TOUCH, len(accesses))
        for oid, last_access_ns in accesses.items():
            self.payload += _TOUCHED.pack(oid, last_access_ns)
            self._index.touch(oid, last_access_ns)

    def serial(self, next_serial: int) -> None:
        self.payload += _SERIAL.pack(SERIAL, next_serial)


def apply(payload: memoryview, index: Target) -> None:
    """Replay one transaction. Raises CorruptMetadata when a payload that verified makes no sense."""
    try:
        _apply(payload, index)
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise CorruptMetadata(f"a transaction of the metadata log makes no sense: {error}") from error


def _take(payload: memoryview, at: int, length: int) -> bytes:
    if at + length > len(payload):
        raise ValueError("an item ends behind its transaction")
    return bytes(payload[at : at + length])


def _apply(payload: memoryview, index: Target) -> None:
    (time_ns,) = _TIME.unpack_from(payload)
    at = _TIME.size
    while at < len(payload):
        kind = payload[at]
        if kind == OBJECT:
            (
                _,
                oid,
                mode,
                uid,
                gid,
                flags,
                size,
                atime,
                mtime,
                ctime,
                generation,
                access,
                n_extents,
                n_granules,
                n_extra,
            ) = _OBJECT.unpack_from(payload, at)
            at += _OBJECT.size
            extents = decode_extents(_take(payload, at, n_extents * EXTENT_BYTES))
            at += n_extents * EXTENT_BYTES
            checksums = _take(payload, at, n_granules * 4)
            at += n_granules * 4
            extra = _take(payload, at, n_extra)
            at += n_extra
            Extra.decode(extra)
            index.put(
                Row(
                    oid, mode, uid, gid, flags, size, atime, mtime, ctime, generation, access, extents, checksums, extra
                )
            )
        elif kind == NAME:
            _, parent, oid, length = _NAME.unpack_from(payload, at)
            name = _take(payload, at + _NAME.size, length)
            if not is_name(name):
                raise ValueError(f"{name!r} can't be a name")
            index.name(parent, name, oid, time_ns)
            at += _NAME.size + length
        elif kind == UNNAME:
            _, parent, length = _UNNAME.unpack_from(payload, at)
            index.unname(parent, _take(payload, at + _UNNAME.size, length), time_ns)
            at += _UNNAME.size + length
        elif kind == DROP:
            index.drop(_DROP.unpack_from(payload, at)[1])
            at += _DROP.size
        elif kind == ATTRIBUTES:
            index.attributes(*_ATTRIBUTES.unpack_from(payload, at)[1:])
            at += _ATTRIBUTES.size
        elif kind == EXTRA:
            _, oid, length = _EXTRA.unpack_from(payload, at)
            extra = _take(payload, at + _EXTRA.size, length)
            Extra.decode(extra)
            index.extra(oid, extra)
            at += _EXTRA.size + length
        elif kind == TOUCH:
            count = _TOUCH.unpack_from(payload, at)[1]
            at += _TOUCH.size
            for oid, access in _TOUCHED.iter_unpack(_take(payload, at, count * _TOUCHED.size)):
                index.touch(oid, access)
            at += count * _TOUCHED.size
        elif kind == SERIAL:
            serial = _SERIAL.unpack_from(payload, at)[1]
            if serial > MAX_COUNT:
                raise ValueError(f"serial {serial} is impossible")
            index.next_serial = max(index.next_serial, serial)
            at += _SERIAL.size
        else:
            raise ValueError(f"item of unknown kind {kind}")
