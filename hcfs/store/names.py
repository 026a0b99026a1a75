"""Names of committed objects: memory only, each change one transaction."""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator

from hcfs.store.attributes import NAME_MAX, ROOT_ID, Extra, Kind, is_name, kind_of
from hcfs.store.entries import parts_of
from hcfs.store.errors import (
    AcrossNamespaces,
    DirectoryIntoItself,
    DirectoryNotEmpty,
    InvalidName,
    IsADirectory,
    NameExists,
    NameTooLong,
    NoSuchName,
    NotADirectory,
    NotPermitted,
    TooManyLinks,
)
from hcfs.store.ledger import Ledger
from hcfs.store.locking import lock_held
from hcfs.store.metadata_room import MetadataRoom
from hcfs.store.retention import Retention
from hcfs.store.table import ROW_BYTES, Row
from hcfs.store.transactions import Transaction
from hcfs.store.tree import ROOT_SLOT, Tree

LINK_MAX = 4000
"""Names of one object: with the longest names they take 4 MiB of a checkpoint's page, or of the record that drops it"""


def check_name(name: bytes) -> None:
    """Raises NameTooLong or InvalidName."""
    if len(name) > NAME_MAX:
        raise NameTooLong(f"a name of {len(name)} bytes is too long: at most {NAME_MAX} bytes a component")
    if not is_name(name):
        raise InvalidName(f"{name!r} can't be a name")


class Listing:
    """The names in one directory, in pieces that are each taken while others wait for a moment. A name that is there
    from the first piece to the last comes exactly once. Used by one thread at a time."""

    def __init__(self, lock: threading.RLock, tree: Tree, slot: int) -> None:
        self._lock = lock
        self._tree = tree
        self._slot = slot
        self._parts: Iterator[dict[bytes, int]] | None = None

    def more(self) -> list[bytes]:
        """The next names, some thousands at most; none at the end. Memory only."""
        with self._lock:
            if self._parts is None:
                # From here on the parts themselves are held: where the directory is removed they are empty, and where
                # it becomes one with many entries, this one was taken whole.
                self._parts = iter(parts_of(self._tree.children.get(self._slot, {})))
            for part in self._parts:
                if part:
                    return list(part)
        return []


class Names:
    """Which names there are, and what they lead to. Memory only; thread-safe."""

    def __init__(self, ledger: Ledger, room: MetadataRoom, retention: Retention) -> None:
        self.lock = ledger.lock
        self._ledger = ledger
        self._room = room
        self._retention = retention
        self._table = ledger.index.table
        self._tree = ledger.index.tree

    # --- looking ---------------------------------------------------------------------------------------------------

    def lookup(self, parent: int, name: bytes) -> int | None:
        """The id that a directory's entry leads to, or None. Raises NoSuchObject, NotADirectory, NameTooLong."""
        if len(name) > NAME_MAX:
            check_name(name)
        with self.lock:
            slot = self._tree.lookup(self.directory(parent), name)
            return self._table.id[slot] if slot else None

    def is_current(self, oid: int) -> bool:
        """Whether the object has a name (the root counts)."""
        with self.lock:
            slot = self._table.slot(oid)
            return bool(slot) and (oid == ROOT_ID or bool(self._tree.names(slot)))

    def list_directory(self, oid: int) -> list[tuple[bytes, int]]:
        """(name, id) of each entry: a snapshot. Everybody waits meanwhile, 0.1 s for a million entries: `listing` is
        for directories that may have many."""
        with self.lock:
            children = self._tree.children.get(self.directory(oid), {})
            ids = self._table.id
            return [(name, ids[slot]) for name, slot in children.items()]

    def listing(self, oid: int) -> Listing:
        """The names in a directory, as they are when they are asked for. Raises NoSuchObject, NotADirectory."""
        with self.lock:
            return Listing(self.lock, self._tree, self.directory(oid))

    def entry_count(self, oid: int) -> int:
        """How many entries a directory has."""
        with self.lock:
            return len(self._tree.children.get(self.directory(oid), ()))

    def parent_of(self, oid: int) -> int:
        """Id of the directory that holds the object's first name; the root is its own. Raises NoSuchObject."""
        with self.lock:
            slot = self._ledger.slot(oid)
            if oid == ROOT_ID:
                return ROOT_ID
            names = self._tree.names(slot)
            return self._table.id[names[0][0]] if names else ROOT_ID

    def names_of(self, oid: int) -> list[tuple[int, bytes]]:
        """(parent id, name) of each name; empty for the root and for what is gone."""
        with self.lock:
            slot = self._table.slot(oid)
            return [(self._table.id[parent], name) for parent, name in self._tree.names(slot)] if slot else []

    def path_of(self, oid: int) -> bytes:
        """Path of the first name from the root, without a leading slash."""
        with self.lock:
            return self._tree.path(self._ledger.slot(oid))

    def shown_path_of(self, oid: int) -> bytes:
        """As `path_of`, for people: of a path of very many components the last ones, behind `...`."""
        with self.lock:
            return self._tree.shown_path(self._ledger.slot(oid))

    def namespace_of(self, oid: int) -> int:
        """Id of the directory of the namespace that the object is in (its own for a namespace's directory); 0 for the
        root."""
        with self.lock:
            return self._table.id[self._tree.namespace(self._ledger.slot(oid))]

    # --- making ----------------------------------------------------------------------------------------------------

    def mkdir(self, parent: int, name: bytes, mode: int, uid: int, gid: int) -> int:
        """Make a directory; its id. `mode` without the file type."""
        return self._create(parent, name, stat.S_IFDIR | stat.S_IMODE(mode), uid, gid, Extra())

    def symlink(self, parent: int, name: bytes, target: bytes, uid: int, gid: int) -> int:
        """Make a symbolic link; its id."""
        if len(target) > 4095:
            raise NameTooLong(f"a symlink's target of {len(target)} bytes is too long: at most 4095")
        return self._create(parent, name, stat.S_IFLNK | 0o777, uid, gid, Extra(target=target))

    def create_empty(self, parent: int, name: bytes, mode: int, uid: int, gid: int) -> int:
        """Make an empty, committed file; its id."""
        return self._create(parent, name, stat.S_IFREG | stat.S_IMODE(mode), uid, gid, Extra())

    def _create(self, parent: int, name: bytes, mode: int, uid: int, gid: int, extra: Extra) -> int:
        check_name(name)
        with self._ledger.change() as transaction:
            parent_slot = self.directory(parent)
            if parent_slot == ROOT_SLOT and not stat.S_ISDIR(mode):
                raise NotPermitted(
                    "only namespaces (directories) can be made at the mount's root; make the file inside one"
                )
            if self._tree.lookup(parent_slot, name):
                raise NameExists(f"{name!r} exists")
            encoded = extra.encode()
            self._room.require(ROW_BYTES + len(name) + len(encoded), 1)
            oid = self._ledger.new_id()
            now = transaction.time_ns
            transaction.put(
                Row(oid, mode, uid, gid, 0, 0, now, now, now, self._ledger.next_sequence, now, (), b"", encoded),
            )
            transaction.name(parent, name, oid)
            if stat.S_ISREG(mode):
                self._ledger.files += 1
                self._ledger.observe_added(self._ledger.slot(oid))
            return oid

    # --- removing, moving ------------------------------------------------------------------------------------------

    def unlink(self, parent: int, name: bytes) -> int:
        """Take a file's or symlink's name away; the id it led to."""
        with self._ledger.change() as transaction:
            slot = self._entry(parent, name)
            if kind_of(self._table.mode[slot]) is Kind.DIRECTORY:
                raise IsADirectory(f"{name!r} is a directory")
            oid = self._table.id[slot]
            self.take_name(transaction, parent, name, slot)
            return oid

    def rmdir(self, parent: int, name: bytes) -> int:
        """Remove an empty directory; its id."""
        with self._ledger.change() as transaction:
            slot = self._entry(parent, name)
            self._require_empty_directory(slot, name)
            oid = self._table.id[slot]
            transaction.unname(parent, name)
            self._retention.drop(transaction, slot)
            return oid

    def rename(
        self, old_parent: int, old_name: bytes, new_parent: int, new_name: bytes, *, replace: bool = True
    ) -> None:
        """Rename within a namespace, over an existing name too unless `replace` is False."""
        check_name(new_name)
        with self._ledger.change() as transaction:
            tree, table = self._tree, self._table
            slot = self._entry(old_parent, old_name)
            target_parent = self.directory(new_parent)
            directory = kind_of(table.mode[slot]) is Kind.DIRECTORY
            self._require_same_namespace(old_parent, new_parent)
            target = tree.lookup(target_parent, new_name)
            if target and not replace:
                raise NameExists(f"{new_name!r} exists")
            if target == slot:
                return
            if directory and tree.is_within(target_parent, slot):
                raise DirectoryIntoItself(f"{old_name!r} can't be moved into itself")
            if target:
                if directory:
                    self._require_empty_directory(target, new_name)
                elif kind_of(table.mode[target]) is Kind.DIRECTORY:
                    raise IsADirectory(f"{new_name!r} is a directory")
            self._room.require(max(0, len(new_name) - len(old_name)), 0)
            if target:
                if directory:
                    transaction.unname(new_parent, new_name)
                    self._retention.drop(transaction, target)
                else:
                    self.take_name(transaction, new_parent, new_name, target)
            observed = self._first_name(slot) == (old_parent, old_name)
            if observed:
                self._ledger.observe_removed(slot)
            transaction.unname(old_parent, old_name)
            transaction.name(new_parent, new_name, table.id[slot])
            if observed:
                self._ledger.observe_added(slot)

    def link(self, oid: int, parent: int, name: bytes) -> None:
        """Give a file or symlink a further name within its namespace."""
        check_name(name)
        with self._ledger.change() as transaction:
            slot = self._ledger.slot(oid)
            parent_slot = self.directory(parent)
            names = self._tree.names(slot)
            if kind_of(self._table.mode[slot]) is Kind.DIRECTORY:
                raise NotPermitted("a directory can't have a second name")
            if not names:
                raise NoSuchName("the object has no name any more")
            if self._tree.namespace(slot) != self._tree.namespace(parent_slot):
                raise AcrossNamespaces("a link can't lead into another namespace")
            if self._tree.lookup(parent_slot, name):
                raise NameExists(f"{name!r} exists")
            if len(names) >= LINK_MAX:
                raise TooManyLinks(f"the object has {len(names)} names already")
            self._room.require(len(name) + 16, 0)
            transaction.name(parent, name, oid)

    # --- for transactions of other parts ---------------------------------------------------------------------------

    @lock_held
    def take_name(self, transaction: Transaction, parent: int, name: bytes, slot: int) -> None:
        """Remove a name of a file or symlink, and the object with its last one. Lock held."""
        tree = self._tree
        first = self._first_name(slot) == (parent, name)
        last = len(tree.names(slot)) == 1
        if first:
            self._ledger.observe_removed(slot)
        transaction.unname(parent, name)
        if last:
            self._retention.drop(transaction, slot)
        elif first:
            self._ledger.observe_added(slot)

    @lock_held
    def take_all(self, transaction: Transaction, slot: int) -> list[tuple[int, bytes]]:
        """Take all its names from an object, and drop it; the (parent id, name) pairs it had. Lock held."""
        names = self.names_of(self._table.id[slot])
        for parent, name in names:
            transaction.unname(parent, name)
        self._retention.drop(transaction, slot)
        return names

    @lock_held
    def directory(self, oid: int) -> int:
        """A directory's slot. Lock held. Raises NoSuchObject, NotADirectory."""
        slot = self._ledger.slot(oid)
        if not stat.S_ISDIR(self._table.mode[slot]):
            raise NotADirectory(f"object {oid} is not a directory")
        return slot

    # --- helpers ---------------------------------------------------------------------------------------------------

    def _entry(self, parent: int, name: bytes) -> int:
        check_name(name)
        slot = self._tree.lookup(self.directory(parent), name)
        if not slot:
            raise NoSuchName(f"no entry {name!r}")
        return slot

    def _first_name(self, slot: int) -> tuple[int, bytes] | None:
        names = self._tree.names(slot)
        return (self._table.id[names[0][0]], names[0][1]) if names else None

    def _require_empty_directory(self, slot: int, name: bytes) -> None:
        if kind_of(self._table.mode[slot]) is not Kind.DIRECTORY:
            raise NotADirectory(f"{name!r} is not a directory")
        if self._tree.children.get(slot):
            raise DirectoryNotEmpty(f"directory {name!r} is not empty")

    def _require_same_namespace(self, first: int, second: int) -> None:
        tree = self._tree
        if tree.namespace(self.directory(first)) != tree.namespace(self.directory(second)):
            raise AcrossNamespaces("objects can't move between namespaces: copy them")
