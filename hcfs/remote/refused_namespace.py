"""The place of namespaces whose origin the mount doesn't allow: what is on the device is read, nothing is sent."""

from __future__ import annotations

from hcfs.filesystem.calls import Blocking, Caller, Entry, Opened
from hcfs.filesystem.modes import writes
from hcfs.filesystem.places.local_namespace import LocalNamespace
from hcfs.remote.origin_namespace import OriginNamespace
from hcfs.remote.remote_files import RemoteFiles


class RefusedNamespace:
    """A Place: as one whose origin doesn't answer, but that what the origin never had is there all the same."""

    def __init__(self, local: LocalNamespace, silent: OriginNamespace, files: RemoteFiles) -> None:
        """silent: the place of namespaces whose origin, here, answers nothing."""
        self._local = local
        self._silent = silent
        self._files = files
        self.getattr = silent.getattr
        self.readlink = silent.readlink
        self.setattr = silent.setattr
        self.create = silent.create
        self.opendir = silent.opendir
        self.mkdir = silent.mkdir
        self.symlink = silent.symlink
        self.mknod = silent.mknod
        self.unlink = silent.unlink
        self.rmdir = silent.rmdir
        self.link = silent.link
        self.rename = silent.rename
        self.getxattr = silent.getxattr
        self.listxattr = silent.listxattr
        self.setxattr = silent.setxattr
        self.removexattr = silent.removexattr

    def lookup(self, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        if name not in (b".", b"..") and self._files.is_plain(parent, name, caller):
            return self._local.lookup(parent, name, caller)
        return self._silent.lookup(parent, name, caller)

    def open(self, ino: int, flags: int, caller: Caller) -> Opened | Blocking[Opened]:
        if not writes(flags) and self._files.is_here(ino):
            return self._local.open(ino, flags, caller)
        return self._silent.open(ino, flags, caller)
