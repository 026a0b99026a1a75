"""The whole filesystem: the operations on objects and versions, and the virtual tree beside them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar

from hcfs.errors import HcfsError
from hcfs.mount.answers import Blocking, Caller, CallError, Entry, Opened, finish
from hcfs.mount.attributes import Changes
from hcfs.mount.control import Control
from hcfs.mount.handles import ControlHandle, DirectoryHandle, LockHandle, StreamHandle, VersionHandle, VirtualHandle
from hcfs.mount.object_handle import ObjectHandle
from hcfs.mount.opening import Created
from hcfs.mount.versions import Fate
from hcfs.mount.virtual import NAME, VirtualTree
from hcfs.mount.written_files import WrittenFiles
from hcfs.store import ROOT_ID
from hcfs.store.errors import MetadataFull

T = TypeVar("T")


class Filesystem(WrittenFiles):
    """What pyfuse3's operations call, and whatever else serves the kernel's requests.

    Every method may be called from any thread. Those that return Blocking, and read, write and fsync, wait for I/O; the
    others answer from memory. Refusals are HcfsError with an errno; anything else that is raised is a bug.
    """

    virtual: VirtualTree | None = None
    """Set once the mount is made; the core works without."""

    control: Control | None = None
    """The same."""

    def _is_virtual(self, ino: int) -> bool:
        return VirtualTree.owns(ino)

    def _tree(self) -> VirtualTree:
        if self.virtual is None:
            raise CallError(errno.ENOENT)
        return self.virtual

    def _refuse_virtual(self, *names: tuple[int, bytes]) -> None:
        """EROFS: the tree can't be changed."""
        for parent, name in names:
            if VirtualTree.owns_name(parent, name):
                raise CallError(errno.EROFS)

    def with_room(self, make: Callable[[], T | Blocking[T]]) -> T | Blocking[T]:
        """Change something that metadata must have room for, as Cache.with_room; the answer is Blocking only where
        there is none at once."""
        try:
            return make()
        except MetadataFull:
            return Blocking(lambda: self._with_room_made(make))

    def _with_room_made(self, make: Callable[[], T | Blocking[T]]) -> T:
        try:
            return self.cache.with_room(lambda: finish(make()))
        except MetadataFull as error:
            self.store.note_full(error)
            raise

    def path_of(self, ino: int) -> bytes:
        """Where an inode is, for the log; its number when it has no name."""
        with self.lock:
            version = self.versions.get(ino)
            if version is not None and version.fate is not Fate.PUBLISHED:
                return self.shown(version).removeprefix("'").removesuffix("'").encode(errors="surrogateescape")
        try:
            return self.store.path_of(ino)
        except HcfsError:
            return b"inode %d" % ino

    def path_of_handle(self, number: int) -> bytes:
        """Where an open file or directory is, for the log."""
        try:
            handle = self.handles.get(number)
        except HcfsError:
            return b"handle %d" % number
        if isinstance(handle, ObjectHandle):
            return self.path_of(handle.pin.oid)
        if isinstance(handle, StreamHandle):
            return handle.stream.remote.listed.key.encode(errors="surrogateescape")
        if isinstance(handle, VersionHandle):
            return self.path_of(handle.version.ino)
        if isinstance(handle, LockHandle):
            return self.path_of(handle.lock_file.oid)
        return self.path_of(handle.ino) if isinstance(handle, DirectoryHandle) else NAME

    def lookup(self, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        if not VirtualTree.owns_name(parent, name):
            return super().lookup(parent, name, caller)
        ino = self._tree().lookup(parent, name)
        return Entry(0, None, 0.0, 0.0) if ino is None else self.getattr(ino)

    def getattr(self, ino: int) -> Entry:
        if not self._is_virtual(ino):
            return super().getattr(ino)
        return Entry(ino, self._tree().attributes(ino), 1.0, 1.0)

    def setattr(self, ino: int, changes: Changes, number: int | None, caller: Caller) -> Entry | Blocking[Entry]:
        if self._is_virtual(ino):
            raise CallError(errno.EROFS)
        return super().setattr(ino, changes, number, caller)

    def open(self, ino: int, flags: int, caller: Caller) -> Opened | Blocking[Opened]:
        if not self._is_virtual(ino):
            return super().open(ino, flags, caller)
        if VirtualTree.is_control(ino):
            return self._open_control(flags, caller)
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            raise CallError(errno.EROFS)
        handle = VirtualHandle(self._tree().content(ino))
        return Opened(self.handles.add(handle), keep_cache=False, direct_io=True)

    def _open_control(self, flags: int, caller: Caller) -> Opened:
        """EPERM for whoever may not administer: the kernel has checked the mode, but perhaps with an owner that is
        replaced meanwhile. EACCES unless it is opened to write a command and to read its answer."""
        if self.control is None:
            raise CallError(errno.ENOENT)
        if not self._tree().may_administer(caller.uid):
            raise CallError(errno.EPERM)
        if flags & os.O_ACCMODE != os.O_RDWR:
            raise CallError(errno.EACCES)
        return Opened(self.handles.add(ControlHandle(self.control)), keep_cache=False, direct_io=True)

    def create(self, parent: int, name: bytes, mode: int, flags: int, caller: Caller) -> Created:
        self._refuse_virtual((parent, name))
        return super().create(parent, name, mode, flags, caller)

    def opendir(self, ino: int, caller: Caller) -> Opened:
        if self._is_virtual(ino):
            tree = self._tree()
            parent = tree.lookup(ino, b"..") or ROOT_ID
            return Opened(self.handles.add(DirectoryHandle(ino, parent, tree.entries(ino))))
        opened = super().opendir(ino, caller)
        if ino == ROOT_ID and self.virtual is not None:
            self.handles.directory(opened.handle).fixed.append((NAME, self.virtual.root))
        return opened

    def mkdir(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        self._refuse_virtual((parent, name))
        return super().mkdir(parent, name, mode, caller)

    def symlink(self, parent: int, name: bytes, target: bytes, caller: Caller) -> Entry:
        self._refuse_virtual((parent, name))
        return super().symlink(parent, name, target, caller)

    def mknod(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        self._refuse_virtual((parent, name))
        return super().mknod(parent, name, mode, caller)

    def unlink(self, parent: int, name: bytes, caller: Caller) -> Blocking[None] | None:
        self._refuse_virtual((parent, name))
        return super().unlink(parent, name, caller)

    def rmdir(self, parent: int, name: bytes) -> None:
        self._refuse_virtual((parent, name))
        super().rmdir(parent, name)

    def link(self, ino: int, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        self._refuse_virtual((parent, name))
        if self._is_virtual(ino):
            raise CallError(errno.EXDEV)
        return super().link(ino, parent, name, caller)

    def rename(
        self, old_parent: int, old_name: bytes, parent: int, name: bytes, flags: int, caller: Caller
    ) -> Blocking[None] | None:
        self._refuse_virtual((old_parent, old_name), (parent, name))
        return super().rename(old_parent, old_name, parent, name, flags, caller)

    def getxattr(self, ino: int, name: bytes) -> bytes | Blocking[bytes]:
        if self._is_virtual(ino):
            raise CallError(errno.ENODATA)
        return super().getxattr(ino, name)

    def listxattr(self, ino: int) -> list[bytes]:
        return [] if self._is_virtual(ino) else super().listxattr(ino)

    def setxattr(self, ino: int, name: bytes, value: bytes, caller: Caller) -> None:
        if self._is_virtual(ino):
            raise CallError(errno.EROFS)
        super().setxattr(ino, name, value, caller)

    def removexattr(self, ino: int, name: bytes, caller: Caller) -> None:
        if self._is_virtual(ino):
            raise CallError(errno.EROFS)
        super().removexattr(ino, name, caller)
