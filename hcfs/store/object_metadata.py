"""Attributes and extended attributes of committed objects: memory only, each change one transaction."""

from __future__ import annotations

import stat
import time
from collections.abc import Mapping

from hcfs.store.attributes import ENTRY_BYTES, Attributes, Extra
from hcfs.store.errors import InvalidName, NoSuchAttribute
from hcfs.store.ledger import TOUCHES_A_RECORD, Ledger
from hcfs.store.locking import lock_held
from hcfs.store.metadata_room import MetadataRoom
from hcfs.store.retention import Retention
from hcfs.store.timestamps import now_ns
from hcfs.store.transactions import Transaction
from hcfs.store.xattrs import check_xattr

TOUCHES_MOST = 4 * TOUCHES_A_RECORD
"""Accesses that wait for a commit of something else, 2 MiB of memory; more of them are queued at once"""


class ObjectMetadata:
    """What is said of objects beside their names and bytes. Memory only; thread-safe."""

    def __init__(self, ledger: Ledger, room: MetadataRoom, retention: Retention) -> None:
        self.lock = ledger.lock
        self._ledger = ledger
        self._table = ledger.index.table
        self._room = room
        self._gone = retention.gone

    def attributes(self, oid: int) -> Attributes:
        """The object's attributes; of a pinned object that was dropped, the last ones, with nlink 0. Memory only.
        Raises NoSuchObject."""
        with self.lock:
            if self._gone and oid in self._gone:
                return self._gone[oid]
            return self._ledger.attributes(self._ledger.slot(oid))

    def set_attributes(
        self,
        oid: int,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        atime_ns: int | None = None,
        mtime_ns: int | None = None,
        ctime_ns: int | None = None,
    ) -> None:
        """Change some attributes; ctime is set to now unless given. `mode` without the file type."""
        with self.lock:
            old = self._gone.get(oid)
            if old is not None:
                self._gone[oid] = old._replace(
                    mode=old.mode if mode is None else stat.S_IFMT(old.mode) | stat.S_IMODE(mode),
                    uid=old.uid if uid is None else uid,
                    gid=old.gid if gid is None else gid,
                    atime_ns=old.atime_ns if atime_ns is None else atime_ns,
                    mtime_ns=old.mtime_ns if mtime_ns is None else mtime_ns,
                    ctime_ns=now_ns() if ctime_ns is None else ctime_ns,
                )
                return
        with self._ledger.change() as transaction:
            slot, table = self._ledger.slot(oid), self._table
            transaction.attributes(
                oid,
                table.mode[slot] if mode is None else stat.S_IFMT(table.mode[slot]) | stat.S_IMODE(mode),
                table.uid[slot] if uid is None else uid,
                table.gid[slot] if gid is None else gid,
                table.flags[slot],
                table.atime_ns[slot] if atime_ns is None else atime_ns,
                table.mtime_ns[slot] if mtime_ns is None else mtime_ns,
                transaction.time_ns if ctime_ns is None else ctime_ns,
            )

    def readlink(self, oid: int) -> bytes:
        """A symlink's target. Raises InvalidName (EINVAL) for anything else."""
        with self.lock:
            target = self.extra_of(self._ledger.slot(oid)).target
            if target is None:
                raise InvalidName(f"object {oid} is not a symbolic link")
            return target

    @lock_held
    def extra_of(self, slot: int) -> Extra:
        """The decoded extra of a row. Lock held."""
        return Extra.decode(self._table.extra.get(slot, b""))

    def get_xattr(self, oid: int, name: bytes) -> bytes | None:
        """An extended attribute's value, or None."""
        with self.lock:
            return self.extra_of(self._ledger.slot(oid)).xattrs.get(name)

    def list_xattrs(self, oid: int) -> list[bytes]:
        """Names of the extended attributes, internal ones (`hcfs.`) included."""
        with self.lock:
            return list(self.extra_of(self._ledger.slot(oid)).xattrs)

    def set_xattr(self, oid: int, name: bytes, value: bytes, *, create: bool = False, replace: bool = False) -> None:
        """Set an extended attribute."""
        with self._ledger.change() as transaction:
            slot = self._ledger.slot(oid)
            extra = self.extra_of(slot)
            check_xattr(extra.xattrs, name, value, create=create, replace=replace)
            former = len(extra.xattrs.get(name, b""))
            self._room.require(max(0, ENTRY_BYTES + len(name) + len(value) - former), 0)
            extra.xattrs[name] = value
            transaction.extra(oid, extra)
            self._changed(transaction, slot)

    def remove_xattr(self, oid: int, name: bytes) -> None:
        """Remove an extended attribute. Raises NoSuchAttribute."""
        with self._ledger.change() as transaction:
            slot = self._ledger.slot(oid)
            extra = self.extra_of(slot)
            if extra.xattrs.pop(name, None) is None:
                raise NoSuchAttribute(f"no extended attribute {name!r}")
            transaction.extra(oid, extra)
            self._changed(transaction, slot)

    def replace_xattrs(self, oid: int, changes: Mapping[bytes, bytes | None]) -> None:
        """Set or, with None, remove several extended attributes of hcfs's own in one transaction. No time of the
        object's changes: nothing that its users see does. Raises MetadataFull, NoSuchObject, ReadOnlyStore."""
        with self._ledger.change() as transaction:
            slot = self._ledger.slot(oid)
            extra = self.extra_of(slot)
            former = len(extra.encode())
            for name, value in changes.items():
                if value is None:
                    extra.xattrs.pop(name, None)
                else:
                    extra.xattrs[name] = value
            self._room.require(max(0, len(extra.encode()) - former), 0)
            transaction.extra(oid, extra)

    def with_xattr(self, name: bytes) -> list[tuple[int, bytes]]:
        """(id, value) of each object that has an extended attribute. For the start of a mount: only objects that have
        any are looked into."""
        with self.lock:
            table, found = self._table, []
            for slot, encoded in table.extra.items():
                if name in encoded:
                    value = self.extra_of(slot).xattrs.get(name)
                    if value is not None:
                        found.append((table.id[slot], value))
            return found

    def _changed(self, transaction: Transaction, slot: int) -> None:
        t = self._table
        attributes = (t.mode[slot], t.uid[slot], t.gid[slot], t.flags[slot], t.atime_ns[slot], t.mtime_ns[slot])
        transaction.attributes(t.id[slot], *attributes, transaction.time_ns)

    def touch(self, oid: int, when_ns: int | None = None) -> None:
        """Note an access; made durable lazily, with the next commit of something else or `flush_touches`."""
        with self.lock:
            slot = self._table.slot(oid)
            if slot:
                when = time.time_ns() if when_ns is None else when_ns
                self._table.last_access_ns[slot] = when
                if self._ledger.writable:
                    self._ledger.touched[oid] = when
        if len(self._ledger.touched) >= TOUCHES_MOST:
            self._ledger.queue_touches()
