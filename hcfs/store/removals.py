"""Quarantine and eviction: committed objects that stop being hits."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from hcfs.store.attributes import Flags, Kind, kind_of
from hcfs.store.errors import NoSuchObject
from hcfs.store.ledger import Ledger
from hcfs.store.metadata_room import MetadataRoom
from hcfs.store.names import Names
from hcfs.store.object_metadata import ObjectMetadata
from hcfs.store.retention import Retention
from hcfs.store.space import Share
from hcfs.store.timestamps import now_ns

QUARANTINE_XATTR = b"hcfs.quarantine"


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An object that failed verification: a miss for everybody, kept for inspection, evicted first."""

    id: int
    path: bytes
    """Its first name's path when it was quarantined"""
    reason: str
    blocks: int
    since_ns: int


class Removals:
    """Lets objects go, whatever their names. Memory only; thread-safe."""

    def __init__(
        self, ledger: Ledger, room: MetadataRoom, retention: Retention, names: Names, metadata: ObjectMetadata
    ) -> None:
        self.lock = ledger.lock
        self._ledger = ledger
        self._room = room
        self._retention = retention
        self._names = names
        self._metadata = metadata
        self._table = ledger.index.table

    def quarantine(self, oid: int, reason: str, generation: int | None = None) -> list[tuple[int, bytes]]:
        """Take all names from a file that can't be trusted and set it aside. Memory only; durable with the next commit.

        generation: of the content that was found bad; None for whatever it is now. The (parent id, name) pairs taken;
        none when it was quarantined or dropped before, or has other content by now. On a read-only store the
        names go from memory only, which is enough to make it a miss until the next mount finds it again."""
        with self.lock:
            slot = self._table.slot(oid)
            if (
                not slot
                or self._table.flags[slot] & Flags.QUARANTINED
                or kind_of(self._table.mode[slot]) is not Kind.FILE
                or generation not in (None, self._table.generation[slot])
            ):
                return []
            names = self._names.names_of(oid)
            path = self._ledger.index.tree.path(slot)
            blocks = self._table.blocks(slot)
            self._ledger.observe_removed(slot)
            if not self._ledger.writable:
                for parent, name in names:
                    self._ledger.index.unname(parent, name, now_ns())
                self._table.flags[slot] |= Flags.QUARANTINED
            else:
                if self._room.shortage(len(path), 0):
                    path = b""  # what the names took holds the rest of the note
                note = {"path": path.decode(errors="surrogateescape"), "reason": reason, "since_ns": time.time_ns()}
                extra = self._metadata.extra_of(slot)
                extra.xattrs[QUARANTINE_XATTR] = json.dumps(note).encode()
                with self._ledger.change() as transaction:
                    for parent, name in names:
                        transaction.unname(parent, name)
                    transaction.extra(oid, extra)
                    t = self._table
                    attributes = (
                        t.uid[slot],
                        t.gid[slot],
                        t.flags[slot] | Flags.QUARANTINED,
                        t.atime_ns[slot],
                        t.mtime_ns[slot],
                    )
                    transaction.attributes(oid, t.mode[slot], *attributes, t.ctime_ns[slot])
            self._ledger.space.move(Share.USED, Share.QUARANTINED, blocks)
            if self._retention.pinned(oid):
                self._ledger.space.pinned_used -= blocks
            self._ledger.files -= 1
            self._ledger.quarantined_slots[slot] = None
            return names

    def quarantined(self) -> list[Quarantined]:
        """Every quarantined object, in the order of quarantine. Takes as long as there are such objects."""
        with self.lock:
            table, found = self._table, []
            for slot in self._ledger.quarantined_slots:
                note = _note(self._metadata.extra_of(slot).xattrs.get(QUARANTINE_XATTR, b""))
                found.append(Quarantined(table.id[slot], *note[:2], table.blocks(slot), note[2]))
            return found

    def purge(self, oid: int) -> None:
        """Drop a quarantined object. Memory only. Raises NoSuchObject for any other."""
        with self._ledger.change() as transaction:
            slot = self._ledger.slot(oid)
            if not self._table.flags[slot] & Flags.QUARANTINED:
                raise NoSuchObject(f"object {oid} is not quarantined")
            self._retention.drop(transaction, slot)

    def evict(self, oid: int) -> list[tuple[int, bytes]] | None:
        """Drop a file nobody has open, quarantined or not; the (parent id, name) pairs it had. Memory only.

        None, and nothing done, when it is pinned, gone, or not a file."""
        with self.lock:
            slot = self._table.slot(oid)
            if not slot or self._retention.pinned(oid) or kind_of(self._table.mode[slot]) is not Kind.FILE:
                return None
            with self._ledger.change() as transaction:
                self._ledger.observe_removed(slot)
                return self._names.take_all(transaction, slot)

    def drop_lost(self, oids: list[int]) -> None:
        """Drop objects that recovery found unusable."""
        for oid in oids:
            with self._ledger.change() as transaction:
                slot = self._table.slot(oid)
                if slot:
                    self._names.take_all(transaction, slot)

    def is_quarantined(self, oid: int) -> bool:
        """Whether the object was set aside; False also for one that is gone."""
        with self.lock:
            slot = self._table.slot(oid)
            return bool(slot) and bool(self._table.flags[slot] & Flags.QUARANTINED)


def _note(value: bytes) -> tuple[bytes, str, int]:
    """Path, reason and time of a quarantined object, as its attribute holds them."""
    try:
        note = json.loads(value)
        path = str(note["path"]).encode(errors="surrogateescape")
        return path, str(note["reason"]), int(note["since_ns"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return b"", "unknown", 0
