"""Extended attributes where a file may be at its origin alone."""

from __future__ import annotations

import errno

from hcfs.filesystem.calls import Blocking, CallError
from hcfs.filesystem.operations.xattrs import USER, Xattrs
from hcfs.remote.facts import RemoteFacts
from hcfs.remote.origins import Origins
from hcfs.remote.remote_files import RemoteFiles


class RemoteXattrs:
    """Reading them: of what is on the device as anywhere, of what isn't a few facts."""

    def __init__(self, xattrs: Xattrs, origins: Origins, files: RemoteFiles, facts: RemoteFacts) -> None:
        self._xattrs = xattrs
        self._origins = origins
        self._files = files
        self._facts = facts

    def getxattr(self, ino: int, name: bytes) -> bytes | Blocking[bytes]:
        """ENODATA when there is none."""
        remote = self._origins.remote(ino)
        if remote is None:
            return self._xattrs.getxattr(ino, name, self._facts)
        if not name.startswith(USER):
            raise CallError(errno.ENODATA)
        oid = self._files.find_cached(remote)
        if oid is not None:
            return self._xattrs.getxattr(oid, name, self._facts)
        value = self._facts.of_remote(remote).get(name)
        if value is None:
            raise CallError(errno.ENODATA)
        return value

    def listxattr(self, ino: int) -> list[bytes]:
        """Names, those that hcfs computes included."""
        remote = self._origins.remote(ino)
        if remote is None:
            return self._xattrs.listxattr(ino)
        oid = self._files.find_cached(remote)
        return list(self._facts.of_remote(remote)) if oid is None else self._xattrs.listxattr(oid)
