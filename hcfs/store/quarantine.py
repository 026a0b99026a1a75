"""Quarantine and eviction: committed objects that stop being hits."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from hcfs.store.attributes import Flags, Kind, kind_of
from hcfs.store.errors import NoSuchObject
from hcfs.store.space import Share
from hcfs.store.staging import Staging
from hcfs.store.timestamps import now_ns
from hcfs.store.transactions import Transaction

QUARANTINE_XATTR = b"hcfs.quarantine"


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An object that failed verification: a miss for everybody, kept for inspection, evicted first."""

    id: int
    path: bytes
    """its first name's path when it was quarantined"""
    reason: str
    blocks: int
    since_ns: int


class Quarantine(Staging):
    """The part of the store that lets objects go."""

    def quarantine(self, oid: int, reason: str, generation: int | None = None) -> list[tuple[int, bytes]]:
        """Take all names from a file that can't be trusted and set it aside. Memory only; durable with the next commit.

        generation: of the content that was found bad; None for whatever it is now. The (parent id, name) pairs taken;
        none when it was quarantined or dropped before, or has other content by now. On a read-only store the
        names go from memory only, which is enough to make it a miss until the next mount finds it again."""
        with self.lock:
            slot = self.index.table.slot(oid)
            if (
                not slot
                or self.index.table.flags[slot] & Flags.QUARANTINED
                or kind_of(self.index.table.mode[slot]) is not Kind.FILE
                or generation not in (None, self.index.table.generation[slot])
            ):
                return []
            names = self.names_of(oid)
            path = self.index.tree.path(slot)
            blocks = self.index.table.blocks(slot)
            self.observe_removed(slot)
            if self.state == "read-only" or self.writer is None:
                for parent, name in names:
                    self.index.unname(parent, name, now_ns())
                self.index.table.flags[slot] |= Flags.QUARANTINED
            else:
                if self.metadata_shortage(len(path), 0):
                    path = b""  # what the names took holds the rest of the note
                note = {"path": path.decode(errors="surrogateescape"), "reason": reason, "since_ns": time.time_ns()}
                extra = self.extra_of(slot)
                extra.xattrs[QUARANTINE_XATTR] = json.dumps(note).encode()
                with self.change() as transaction:
                    for parent, name in names:
                        transaction.unname(parent, name)
                    transaction.extra(oid, extra)
                    t = self.index.table
                    attributes = (
                        t.uid[slot],
                        t.gid[slot],
                        t.flags[slot] | Flags.QUARANTINED,
                        t.atime_ns[slot],
                        t.mtime_ns[slot],
                    )
                    transaction.attributes(oid, t.mode[slot], *attributes, t.ctime_ns[slot])
            self.space.move(Share.USED, Share.QUARANTINED, blocks)
            if self.pinned(oid):
                self.space.pinned_used -= blocks
            self.files -= 1
            self.quarantined_slots[slot] = None
            return names

    def quarantined(self) -> list[Quarantined]:
        """Every quarantined object, in the order of quarantine. Takes as long as there are such objects."""
        with self.lock:
            table, found = self.index.table, []
            for slot in self.quarantined_slots:
                note = _note(self.extra_of(slot).xattrs.get(QUARANTINE_XATTR, b""))
                found.append(Quarantined(table.id[slot], *note[:2], table.blocks(slot), note[2]))
            return found

    def purge(self, oid: int) -> None:
        """Drop a quarantined object. Memory only. Raises NoSuchObject for any other."""
        with self.change() as transaction:
            slot = self.slot(oid)
            if not self.index.table.flags[slot] & Flags.QUARANTINED:
                raise NoSuchObject(f"object {oid} is not quarantined")
            self.drop(transaction, slot)

    def evict(self, oid: int) -> list[tuple[int, bytes]] | None:
        """Drop a file nobody has open, quarantined or not; the (parent id, name) pairs it had. Memory only.

        None, and nothing done, when it is pinned, gone, or not a file."""
        with self.lock:
            slot = self.index.table.slot(oid)
            if not slot or self.pinned(oid) or kind_of(self.index.table.mode[slot]) is not Kind.FILE:
                return None
            with self.change() as transaction:
                self.observe_removed(slot)
                return self._drop_named(transaction, slot)

    def _drop_named(self, transaction: Transaction, slot: int) -> list[tuple[int, bytes]]:
        """Take all its names from an object, and drop it; the (parent id, name) pairs it had."""
        names = self.names_of(self.index.table.id[slot])
        for parent, name in names:
            transaction.unname(parent, name)
        self.drop(transaction, slot)
        return names


def _note(value: bytes) -> tuple[bytes, str, int]:
    """Path, reason and time of a quarantined object, as its attribute holds them."""
    try:
        note = json.loads(value)
        path = str(note["path"]).encode(errors="surrogateescape")
        return path, str(note["reason"]), int(note["since_ns"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return b"", "unknown", 0
