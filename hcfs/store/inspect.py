"""Looking at a store's structures as they are on the device: what `hcfs inspect` prints.

Reads only; nothing is recovered or mended.
Every function returns plain dicts and lists that JSON can hold; names are decoded with surrogateescape."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from hcfs.device import BlockDevice, DeviceError
from hcfs.store.attributes import ROOT_ID, Extra, Flags, Kind, kind_of
from hcfs.store.errors import NoSuchName
from hcfs.store.granule import Checksummer
from hcfs.store.region import LogScan, RegionReader
from hcfs.store.region_header import read_headers
from hcfs.store.replay import Replayed, current
from hcfs.store.superblock import BLOCK, Superblock, decode, read_pair
from hcfs.store.table import Row
from hcfs.store.transactions import apply
from hcfs.store.unaligned import read_bytes

Fields = dict[str, Any]


def _text(name: bytes) -> str:
    return name.decode(errors="surrogateescape")


def superblock_fields(superblock: Superblock) -> Fields:
    """Every field, by its name in docs/format.md."""
    fields = asdict(superblock)
    return fields | {"uuid": str(superblock.uuid), "regions": list(superblock.regions)}


def superblocks(device: BlockDevice) -> Fields:
    """Both copies, the metadata regions' headers and what is wrong with those, and which are in force. Raises NotAStore
    and the like."""
    pair = read_pair(device)
    copies: Fields = {}
    for place, block in (("first", 0), ("last", pair.superblock.device_blocks - 1)):
        buffer = bytearray(BLOCK)
        try:
            device.read_into(block * BLOCK, memoryview(buffer))
            found = decode(bytes(buffer))
        except DeviceError as error:
            copies[place] = {"error": str(error)}
            continue
        copies[place] = superblock_fields(found) if found is not None else {"error": "doesn't verify"}
    headers = [read_headers(device, pair.superblock, number) for number in (0, 1)]
    regions = [asdict(found.header) if found.header is not None else None for found in headers]
    valid = [(header["generation"], number) for number, header in enumerate(regions) if header is not None]
    return {
        "superblock": superblock_fields(pair.superblock),
        "copies": copies,
        "regions": regions,
        "region_problems": [problem for found in headers for problem in found.problems],
        "current_region": max(valid)[1] if valid else None,
    }


class _Recorder:
    """Takes the items of a transaction as an index would, and writes them down."""

    def __init__(self) -> None:
        self.items: list[Fields] = []
        self._next_serial = 0

    @property
    def next_serial(self) -> int:
        return self._next_serial

    @next_serial.setter
    def next_serial(self, value: int) -> None:
        self._next_serial = value
        self.items.append({"item": "serial", "next_serial": value})

    def put(self, row: Row) -> None:
        self.items.append(
            {
                "item": "object",
                "id": row.id,
                "kind": kind_of(row.mode).name.lower(),
                "mode": oct(row.mode),
                "uid": row.uid,
                "gid": row.gid,
                "flags": row.flags,
                "size": row.size,
                "generation": row.generation,
                "extents": [asdict(extent) for extent in row.extents],
                "granules": len(row.checksums) // 4,
                "xattrs": [_text(key) for key in Extra.decode(row.extra).xattrs],
            }
        )

    def name(self, parent: int, name: bytes, oid: int, time_ns: int) -> None:
        self.items.append({"item": "name", "parent": parent, "name": _text(name), "id": oid, "time_ns": time_ns})

    def unname(self, parent: int, name: bytes, time_ns: int) -> None:
        self.items.append({"item": "unname", "parent": parent, "name": _text(name), "time_ns": time_ns})

    def drop(self, oid: int) -> None:
        self.items.append({"item": "drop", "id": oid})

    def attributes(
        self, oid: int, mode: int, uid: int, gid: int, flags: int, atime: int, mtime: int, ctime: int
    ) -> None:
        times = {"atime_ns": atime, "mtime_ns": mtime, "ctime_ns": ctime}
        self.items.append(
            {"item": "attributes", "id": oid, "mode": oct(mode), "uid": uid, "gid": gid, "flags": flags, **times}
        )

    def extra(self, oid: int, extra: bytes) -> None:
        self.items.append({"item": "extra", "id": oid, "xattrs": [_text(key) for key in Extra.decode(extra).xattrs]})

    def touch(self, oid: int, last_access_ns: int) -> None:
        self.items.append({"item": "touch", "id": oid, "last_access_ns": last_access_ns})


def log_transactions(device: BlockDevice) -> Iterator[Fields]:
    """The transactions of the current region's log, then one closing entry that says how the log ends."""
    superblock = read_pair(device).superblock
    state = current(device, superblock)
    reader = RegionReader(device, superblock, state.region)
    scan = LogScan(reader, state.header)
    for frame in scan:
        recorder = _Recorder()
        apply(frame.payload, recorder)
        first_in_batch = bool(frame.flags)
        yield {
            "sequence": frame.sequence,
            "first_in_batch": first_in_batch,
            "bytes": len(frame.payload),
            "items": recorder.items,
        }
    yield {
        "end_offset": reader.start + scan.end,
        "next_sequence": scan.next_sequence,
        "torn_tail": scan.torn,
        "damage": [asdict(damage) for damage in scan.damage],
    }


def _object_fields(superblock: Superblock, state: Replayed, slot: int) -> Fields:
    table, tree = state.index.table, state.index.tree
    path = tree.shown_path(slot)
    return {
        "id": table.id[slot],
        "path": "/" + _text(path) if path or table.id[slot] == ROOT_ID else None,
        "names": [
            "/" + _text(b"/".join(filter(None, [tree.shown_path(parent), name]))) for parent, name in tree.names(slot)
        ],
        "kind": kind_of(table.mode[slot]).name.lower(),
        "state": "quarantined" if table.flags[slot] & Flags.QUARANTINED else "committed",
        "mode": oct(table.mode[slot]),
        "uid": table.uid[slot],
        "gid": table.gid[slot],
        "size": table.size[slot],
        "blocks": table.blocks(slot),
        "generation": table.generation[slot],
        "extents": [
            {
                "logical": e.logical,
                "block": e.block,
                "count": e.count,
                "offset": e.block * BLOCK,
                "bytes": e.count * BLOCK,
            }
            for e in table.extents(slot)
        ],
        "granules": -(-table.size[slot] // superblock.granule),
    }


def objects(device: BlockDevice) -> Iterator[Fields]:
    """Every object with its names and extents, in the order of its slots."""
    superblock = read_pair(device).superblock
    state = current(device, superblock)
    for slot in state.index.table.slots():
        yield _object_fields(superblock, state, slot)


def root_directories(device: BlockDevice) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Name and extended attributes, hcfs's own included, of each directory under the root. Raises NotAStore and the
    like."""
    state = current(device, read_pair(device).superblock)
    table, found = state.index.table, []
    for name, slot in state.index.tree.children.get(table.slot(ROOT_ID), {}).items():
        if kind_of(table.mode[slot]) is Kind.DIRECTORY:
            try:
                found.append((name, Extra.decode(table.extra.get(slot, b"")).xattrs))
            except ValueError:
                found.append((name, {}))
    return found


def extents(device: BlockDevice) -> Iterator[Fields]:
    """Every extent by its place on the device, and the free runs between them."""
    superblock = read_pair(device).superblock
    state = current(device, superblock)
    table = state.index.table
    runs = sorted((e.block, e.count, slot) for slot in table.slots() for e in table.extents(slot))
    at, end = superblock.data_start, superblock.data_start + superblock.data_blocks
    for block, count, slot in runs:
        if block > at:
            yield {"block": at, "count": block - at, "id": None, "path": None}
        yield {
            "block": block,
            "count": count,
            "id": table.id[slot],
            "path": "/" + _text(state.index.tree.shown_path(slot)),
        }
        at = max(at, block + count)
    if at < end:
        yield {"block": at, "count": end - at, "id": None, "path": None}


def one_object(device: BlockDevice, key: str) -> Fields:
    """One object by its path in the store or by its id, with its granules' checksums as stored and as read.

    Raises NoSuchName."""
    superblock = read_pair(device).superblock
    state = current(device, superblock)
    table = state.index.table
    slot = _find(state, key)
    fields = _object_fields(superblock, state, slot)
    extra = Extra.decode(table.extra.get(slot, b""))
    fields["xattrs"] = {_text(name): _text(value) for name, value in extra.xattrs.items()}
    fields["target"] = _text(extra.target) if extra.target is not None else None
    fields["checksums"] = _checksums(device, superblock, state, slot)
    return fields


def _find(state: Replayed, key: str) -> int:
    table = state.index.table
    if key.isdigit() and table.slot(int(key)):
        return table.slot(int(key))
    slot = table.slot(ROOT_ID)
    for part in filter(None, key.encode(errors="surrogateescape").split(b"/")):
        slot = state.index.tree.lookup(slot, part)
        if not slot:
            raise NoSuchName(
                f"no object {key!r} in the store: give a path from the store's root, such as /kv/NAME, or an id"
            )
    return slot


def _checksums(device: BlockDevice, superblock: Superblock, state: Replayed, slot: int) -> list[Fields]:
    table = state.index.table
    granules = table.granules(slot)
    if not granules:
        return []
    stored = table.tables.get(slot)
    if granules == 1:
        stored = struct.pack("<I", table.crc[slot])
    elif stored is None:
        stored = read_bytes(device, table.table_at[slot], granules * 4)
    checksummer = Checksummer(superblock.uuid, superblock.granule)
    blocks = superblock.granule // BLOCK
    found = []
    for granule, (length, (expected,)) in enumerate(
        zip(checksummer.lengths(table.size[slot]), struct.iter_unpack("<I", stored), strict=True)
    ):
        data = bytearray(-(-length // BLOCK) * BLOCK)
        entry: Fields = {"granule": granule, "stored": f"{expected:08x}"}
        try:
            for extent in table.extents(slot):
                first = max(extent.logical, granule * blocks)
                stop = min(extent.logical + extent.count, granule * blocks + len(data) // BLOCK)
                if first < stop:
                    at = (first - granule * blocks) * BLOCK
                    part = memoryview(data)[at : at + (stop - first) * BLOCK]
                    device.read_into((extent.block + first - extent.logical) * BLOCK, part)
            read = checksummer.checksum(table.id[slot], granule, memoryview(data)[:length])
            entry |= {"read": f"{read:08x}", "verifies": read == expected}
        except DeviceError as error:
            entry |= {"error": str(error), "verifies": False}
        found.append(entry)
    return found
