"""The place of files that are on this device alone. Other kinds of places have one, for what is the same in them."""

from __future__ import annotations

from hcfs.filesystem.calls import Blocking, Caller, Created, Entry, Opened
from hcfs.filesystem.operations.attribute_changes import AttributeChanges, Changes
from hcfs.filesystem.operations.listing import DirectoryListing
from hcfs.filesystem.operations.lookup import Lookup
from hcfs.filesystem.operations.naming import Naming
from hcfs.filesystem.operations.opening import Opening
from hcfs.filesystem.operations.renaming import Renaming
from hcfs.filesystem.operations.xattrs import Xattrs


class LocalNamespace:
    """A Place."""

    def __init__(
        self,
        lookup: Lookup,
        opening: Opening,
        attribute_changes: AttributeChanges,
        naming: Naming,
        renaming: Renaming,
        listing: DirectoryListing,
        xattrs: Xattrs,
    ) -> None:
        self._lookup = lookup
        self._opening = opening
        self._attribute_changes = attribute_changes
        self._naming = naming
        self._renaming = renaming
        self._listing = listing
        self._xattrs = xattrs

    def lookup(self, parent: int, name: bytes, caller: Caller) -> Entry:
        return self._lookup.lookup(parent, name, caller)

    def getattr(self, ino: int) -> Entry:
        return self._lookup.getattr(ino)

    def readlink(self, ino: int) -> bytes:
        return self._lookup.readlink(ino)

    def setattr(self, ino: int, changes: Changes, number: int | None, caller: Caller) -> Entry | Blocking[Entry]:
        return self._attribute_changes.setattr(ino, changes, number, caller)

    def open(self, ino: int, flags: int, caller: Caller) -> Opened | Blocking[Opened]:
        return self._opening.open(ino, flags, caller)

    def create(self, parent: int, name: bytes, mode: int, flags: int, caller: Caller) -> Created:
        return self._opening.create(parent, name, mode, flags, caller)

    def opendir(self, ino: int, caller: Caller) -> Opened:
        return self._listing.opendir(ino, caller)

    def mkdir(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        return self._naming.mkdir(parent, name, mode, caller)

    def symlink(self, parent: int, name: bytes, target: bytes, caller: Caller) -> Entry:
        return self._naming.symlink(parent, name, target, caller)

    def mknod(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        return self._naming.mknod(parent, name, mode, caller)

    def unlink(self, parent: int, name: bytes, caller: Caller) -> None:
        self._naming.unlink(parent, name, caller)

    def rmdir(self, parent: int, name: bytes) -> None:
        self._naming.rmdir(parent, name)

    def link(self, ino: int, parent: int, name: bytes, caller: Caller) -> Entry:
        return self._naming.link(ino, parent, name, caller)

    def rename(
        self, old_parent: int, old_name: bytes, parent: int, name: bytes, flags: int, caller: Caller
    ) -> Blocking[None] | None:
        return self._renaming.rename(old_parent, old_name, parent, name, flags, caller)

    def getxattr(self, ino: int, name: bytes) -> bytes | Blocking[bytes]:
        return self._xattrs.getxattr(ino, name)

    def listxattr(self, ino: int) -> list[bytes]:
        return self._xattrs.listxattr(ino)

    def setxattr(self, ino: int, name: bytes, value: bytes, caller: Caller) -> None:
        self._xattrs.setxattr(ino, name, value, caller)

    def removexattr(self, ino: int, name: bytes, caller: Caller) -> None:
        self._xattrs.removexattr(ino, name, caller)
