"""The mount's root: its directories are the namespaces, it holds no files, and `.hcfs` is beside them."""

from __future__ import annotations

import errno
from typing import NoReturn

from hcfs.filesystem.calls import Blocking, Caller, CallError, Entry, Opened
from hcfs.filesystem.handles.directory_handle import NameListing
from hcfs.filesystem.inodes import is_virtual
from hcfs.filesystem.operations.attribute_changes import Changes
from hcfs.filesystem.operations.listing import DirectoryListing
from hcfs.filesystem.operations.lookup import check_name
from hcfs.filesystem.places.local_namespace import LocalNamespace
from hcfs.filesystem.places.virtual_place import VirtualPlace
from hcfs.filesystem.places.virtual_tree import NAME
from hcfs.store import ROOT_ID


class Root:
    """A Place, and its directory's Lister. What isn't `.hcfs` is as in any other directory of the store."""

    def __init__(self, local: LocalNamespace, listing: DirectoryListing) -> None:
        self._local = local
        self._listing = listing
        self.virtual: VirtualPlace | None = None
        """Set once the mount is made; the filesystem works without."""

    def lookup(self, parent: int, name: bytes, caller: Caller) -> Entry:
        if name != NAME:
            return self._local.lookup(parent, name, caller)
        if self.virtual is None:
            raise CallError(errno.ENOENT)
        return self.virtual.lookup(parent, name, caller)

    def getattr(self, ino: int) -> Entry:
        if self.virtual is not None and is_virtual(ino):  # as a listing shows it
            return self.virtual.getattr(ino)
        return self._local.getattr(ino)

    def readlink(self, ino: int) -> bytes:
        return self._local.readlink(ino)

    def setattr(self, ino: int, changes: Changes, number: int | None, caller: Caller) -> Entry | Blocking[Entry]:
        return self._local.setattr(ino, changes, number, caller)

    def open(self, ino: int, flags: int, caller: Caller) -> Opened | Blocking[Opened]:
        return self._local.open(ino, flags, caller)

    def opendir(self, ino: int, caller: Caller) -> Opened:
        fixed = () if self.virtual is None else ((NAME, self.virtual.root),)
        return self._listing.opendir(ino, caller, self, fixed)

    def begin_listing(self, directory: int) -> Blocking[None] | None:
        return self._listing.begin_listing(directory)

    def names_in(self, directory: int) -> NameListing:
        return self._listing.names_in(directory)

    def led_to(self, directory: int, batch: list[tuple[bytes, int]]) -> list[Entry | None]:
        return self._listing.led_to(directory, batch)

    def path(self, directory: int) -> bytes:
        return self._listing.path(directory)

    def create(self, parent: int, name: bytes, mode: int, flags: int, caller: Caller) -> NoReturn:
        self._refuse_file(name)

    def symlink(self, parent: int, name: bytes, target: bytes, caller: Caller) -> NoReturn:
        self._refuse_file(name)

    def mknod(self, parent: int, name: bytes, mode: int, caller: Caller) -> NoReturn:
        self._refuse_file(name)

    def link(self, ino: int, parent: int, name: bytes, caller: Caller) -> NoReturn:
        self._refuse_file(name)

    def _refuse_file(self, name: bytes) -> NoReturn:
        """EPERM for files outside namespaces."""
        self._refuse_virtual(name)
        check_name(name)
        raise CallError(errno.EPERM)

    def mkdir(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        self._refuse_virtual(name)
        return self._local.mkdir(parent, name, mode, caller)

    def unlink(self, parent: int, name: bytes, caller: Caller) -> None:
        self._refuse_virtual(name)
        self._local.unlink(parent, name, caller)

    def rmdir(self, parent: int, name: bytes) -> None:
        self._refuse_virtual(name)
        self._local.rmdir(parent, name)

    def rename(
        self, old_parent: int, old_name: bytes, parent: int, name: bytes, flags: int, caller: Caller
    ) -> Blocking[None] | None:
        """Also of what comes here from elsewhere."""
        if old_parent == ROOT_ID:
            self._refuse_virtual(old_name)
        if parent == ROOT_ID:
            self._refuse_virtual(name)
        return self._local.rename(old_parent, old_name, parent, name, flags, caller)

    def _refuse_virtual(self, name: bytes) -> None:
        """EROFS: `.hcfs` can't be changed."""
        if name == NAME:
            raise CallError(errno.EROFS)

    def getxattr(self, ino: int, name: bytes) -> bytes | Blocking[bytes]:
        return self._local.getxattr(ino, name)

    def listxattr(self, ino: int) -> list[bytes]:
        return self._local.listxattr(ino)

    def setxattr(self, ino: int, name: bytes, value: bytes, caller: Caller) -> None:
        self._local.setxattr(ino, name, value, caller)

    def removexattr(self, ino: int, name: bytes, caller: Caller) -> None:
        self._local.removexattr(ino, name, caller)
