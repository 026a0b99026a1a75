"""The place of namespaces with an origin on a mount that has no way there: a read-only one shows what it has."""

from __future__ import annotations

from hcfs.filesystem.calls import Blocking
from hcfs.filesystem.operations.xattrs import Xattrs
from hcfs.filesystem.places.local_namespace import LocalNamespace
from hcfs.remote.facts import RemoteFacts


class OfflineNamespace:
    """A Place: a local one, but for what is said of where the files come from."""

    def __init__(self, local: LocalNamespace, xattrs: Xattrs, facts: RemoteFacts) -> None:
        self._xattrs = xattrs
        self._facts = facts
        self.lookup = local.lookup
        self.getattr = local.getattr
        self.readlink = local.readlink
        self.setattr = local.setattr
        self.open = local.open
        self.create = local.create
        self.opendir = local.opendir
        self.mkdir = local.mkdir
        self.symlink = local.symlink
        self.mknod = local.mknod
        self.unlink = local.unlink
        self.rmdir = local.rmdir
        self.link = local.link
        self.rename = local.rename
        self.listxattr = local.listxattr
        self.setxattr = local.setxattr
        self.removexattr = local.removexattr

    def getxattr(self, ino: int, name: bytes) -> bytes | Blocking[bytes]:
        return self._xattrs.getxattr(ino, name, self._facts)
