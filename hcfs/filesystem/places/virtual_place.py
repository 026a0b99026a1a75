"""The `.hcfs` tree as a place: it can be looked at, and its control file takes commands."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import NoReturn

from hcfs.filesystem.calls import Blocking, Caller, CallError, Entry, Opened
from hcfs.filesystem.entries import ABSENT_ENTRY
from hcfs.filesystem.handles.directory_handle import DirectoryHandle, NameListing
from hcfs.filesystem.handles.table import Handles
from hcfs.filesystem.inodes import is_virtual
from hcfs.filesystem.modes import writes
from hcfs.filesystem.operations.attribute_changes import Changes
from hcfs.filesystem.places.control import Control
from hcfs.filesystem.places.virtual_handles import ControlHandle, VirtualHandle
from hcfs.filesystem.places.virtual_tree import NAME, VirtualTree
from hcfs.store import ROOT_ID

ATTR_TIMEOUT = 1.0


class NoMoreNames:
    """A NameListing: a virtual directory's entries are known by their inodes."""

    def more(self) -> list[bytes]:
        return []


class VirtualPlace:
    """A Place, and a Lister of its directories."""

    def __init__(
        self, tree: VirtualTree, control: Control | None, handles: Handles, above: Callable[[int], Entry]
    ) -> None:
        """control: None where no commands are taken. above: attributes of the directory that the tree is in."""
        self._above = above
        self._tree = tree
        self._control = control
        self._handles = handles

    @property
    def root(self) -> int:
        """Inode of `.hcfs` itself."""
        return self._tree.root

    def lookup(self, parent: int, name: bytes, caller: Caller) -> Entry:
        ino = self._tree.lookup(parent, name)
        return ABSENT_ENTRY if ino is None else self.getattr(ino)

    def getattr(self, ino: int) -> Entry:
        if not is_virtual(ino):  # the parent, as a listing shows it
            return self._above(ino)
        return Entry(ino, self._tree.attributes(ino), ATTR_TIMEOUT, ATTR_TIMEOUT)

    def readlink(self, ino: int) -> bytes:
        """EINVAL: nothing here is one."""
        raise CallError(errno.EINVAL)

    def open(self, ino: int, flags: int, caller: Caller) -> Opened:
        if self._tree.is_control(ino):
            return self._open_control(flags, caller)
        if writes(flags):
            raise CallError(errno.EROFS)
        handle = VirtualHandle(self._tree.content(ino))
        return Opened(self._handles.add(handle), keep_cache=False, direct_io=True)

    def _open_control(self, flags: int, caller: Caller) -> Opened:
        """EPERM for whoever may not administer: the kernel has checked the mode, but perhaps with an owner that is
        replaced meanwhile. EACCES unless it is opened to write a command and to read its answer."""
        if self._control is None:
            raise CallError(errno.ENOENT)
        if not self._tree.may_administer(caller.uid):
            raise CallError(errno.EPERM)
        if flags & os.O_ACCMODE != os.O_RDWR:
            raise CallError(errno.EACCES)
        return Opened(self._handles.add(ControlHandle(self._control, caller)), keep_cache=False, direct_io=True)

    def opendir(self, ino: int, caller: Caller) -> Opened:
        parent = self._tree.lookup(ino, b"..") or ROOT_ID
        return Opened(self._handles.add(DirectoryHandle(ino, parent, self._tree.entries(ino), self)))

    # --- as a Lister -------------------------------------------------------------------------------------------------

    def begin_listing(self, directory: int) -> Blocking[None] | None:
        return None

    def names_in(self, directory: int) -> NameListing:
        return NoMoreNames()

    def led_to(self, directory: int, batch: list[tuple[bytes, int]]) -> list[Entry | None]:
        return [None for _ in batch]

    def path(self, directory: int) -> bytes:
        return NAME

    # --- it can't be changed -----------------------------------------------------------------------------------------

    def setattr(self, ino: int, changes: Changes, number: int | None, caller: Caller) -> NoReturn:
        raise CallError(errno.EROFS)

    def create(self, parent: int, name: bytes, mode: int, flags: int, caller: Caller) -> NoReturn:
        raise CallError(errno.EROFS)

    def mkdir(self, parent: int, name: bytes, mode: int, caller: Caller) -> NoReturn:
        raise CallError(errno.EROFS)

    def symlink(self, parent: int, name: bytes, target: bytes, caller: Caller) -> NoReturn:
        raise CallError(errno.EROFS)

    def mknod(self, parent: int, name: bytes, mode: int, caller: Caller) -> NoReturn:
        raise CallError(errno.EROFS)

    def unlink(self, parent: int, name: bytes, caller: Caller) -> NoReturn:
        raise CallError(errno.EROFS)

    def rmdir(self, parent: int, name: bytes) -> NoReturn:
        raise CallError(errno.EROFS)

    def link(self, ino: int, parent: int, name: bytes, caller: Caller) -> NoReturn:
        raise CallError(errno.EROFS)

    def rename(
        self, old_parent: int, old_name: bytes, parent: int, name: bytes, flags: int, caller: Caller
    ) -> NoReturn:
        raise CallError(errno.EROFS)

    def getxattr(self, ino: int, name: bytes) -> NoReturn:
        raise CallError(errno.ENODATA)

    def listxattr(self, ino: int) -> list[bytes]:
        return []

    def setxattr(self, ino: int, name: bytes, value: bytes, caller: Caller) -> NoReturn:
        raise CallError(errno.EROFS)

    def removexattr(self, ino: int, name: bytes, caller: Caller) -> NoReturn:
        raise CallError(errno.EROFS)
