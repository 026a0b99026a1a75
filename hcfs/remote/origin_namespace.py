"""The place of namespaces whose files are an origin's, and can't be changed here.

What a name is comes from the origin's listing. Where that is too old, or there is none yet, LOOKUP, OPEN and
READDIR are Blocking. With the data plane the kernel then holds a directory only against changes while a lookup in it
waits, and nothing is changed in these directories but by hcfs itself. With pyfuse3 alone, lookups of that one directory
wait too."""

from __future__ import annotations

import errno
from typing import NoReturn

from hcfs.filesystem.calls import Blocking, Caller, CallError, Created, Entry, Opened
from hcfs.filesystem.modes import writes
from hcfs.filesystem.operations.attribute_changes import Changes
from hcfs.filesystem.operations.listing import DirectoryListing
from hcfs.filesystem.places.local_namespace import LocalNamespace
from hcfs.filesystem.versions.version import Versions
from hcfs.remote.origins import Origins
from hcfs.remote.remote_files import RemoteFiles
from hcfs.remote.remote_listing import RemoteLister
from hcfs.remote.remote_xattrs import RemoteXattrs


class OriginNamespace:
    """A Place."""

    def __init__(
        self,
        local: LocalNamespace,
        listing: DirectoryListing,
        lister: RemoteLister,
        xattrs: RemoteXattrs,
        versions: Versions,
        origins: Origins,
        files: RemoteFiles,
    ) -> None:
        self._local = local
        self._listing = listing
        self._lister = lister
        self._xattrs = xattrs
        self._versions = versions
        self._origins = origins
        self._files = files

    def lookup(self, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        origin = self._origins.of_inode(parent)
        if origin is None:  # it has changed since the place was chosen
            return self._local.lookup(parent, name, caller)

        def local() -> Entry:
            return self._local.lookup(parent, name, caller)

        def resolve() -> Entry:
            return self._files.look_up_listed(origin, parent, name, local)

        return self._files.lookup(origin, parent, name, local, resolve)

    def getattr(self, ino: int) -> Entry:
        return self._files.entry_of_inode(ino) or self._local.getattr(ino)

    def readlink(self, ino: int) -> bytes:
        return self._local.readlink(ino)

    def open(self, ino: int, flags: int, caller: Caller) -> Opened | Blocking[Opened]:
        """EROFS for writers."""
        origin = self._origins.of_inode(ino)
        if origin is None:
            return self._local.open(ino, flags, caller)
        if writes(flags):
            raise CallError(errno.EROFS)
        return self._files.open_to_read(origin, ino, flags, caller)

    def opendir(self, ino: int, caller: Caller) -> Opened:
        return self._listing.opendir(ino, caller, self._lister)

    def getxattr(self, ino: int, name: bytes) -> bytes | Blocking[bytes]:
        return self._xattrs.getxattr(ino, name)

    def listxattr(self, ino: int) -> list[bytes]:
        return self._xattrs.listxattr(ino)

    # --- changes: of the namespace's own directory alone -------------------------------------------------------------

    def setattr(self, ino: int, changes: Changes, number: int | None, caller: Caller) -> Entry | Blocking[Entry]:
        self._refuse_below(ino)
        return self._local.setattr(ino, changes, number, caller)

    def setxattr(self, ino: int, name: bytes, value: bytes, caller: Caller) -> None:
        self._refuse_below(ino)
        self._local.setxattr(ino, name, value, caller)

    def removexattr(self, ino: int, name: bytes, caller: Caller) -> None:
        self._refuse_below(ino)
        self._local.removexattr(ino, name, caller)

    def _refuse_below(self, ino: int) -> None:
        """EROFS for all but the namespace's own directory, whose mode, owner and options may change."""
        if self._origins.of(ino) is None:
            raise CallError(errno.EROFS)

    def create(self, parent: int, name: bytes, mode: int, flags: int, caller: Caller) -> Created:
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
        """EXDEV between namespaces, as everywhere: no second name carries an object over."""
        version = self._versions.get(ino)
        self._origins.refuse_elsewhere(ino if version is None else version.staged.namespace, parent)
        raise CallError(errno.EROFS)

    def rename(
        self, old_parent: int, old_name: bytes, parent: int, name: bytes, flags: int, caller: Caller
    ) -> NoReturn:
        """The same."""
        self._origins.refuse_elsewhere(old_parent, parent)
        raise CallError(errno.EROFS)
