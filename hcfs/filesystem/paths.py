"""Where files are, for the log and for people."""

from __future__ import annotations

from hcfs.errors import HcfsError
from hcfs.filesystem.versions.version import Fate, Version, Versions
from hcfs.filesystem.volume import Volume
from hcfs.printable import printable


class Paths:
    """From memory; takes the lock."""

    def __init__(self, volume: Volume, versions: Versions) -> None:
        self._store = volume.store
        self._lock = volume.lock
        self._versions = versions

    def of(self, ino: int) -> bytes:
        """Where an inode is; its number when it has no name."""
        with self._lock:
            version = self._versions.get(ino)
            if version is not None and version.fate is not Fate.PUBLISHED:
                return self.of_version(version)
        try:
            return self._store.path_of(ino)
        except HcfsError:
            return b"inode %d" % ino

    def of_version(self, version: Version) -> bytes:
        """Where a version will be published."""
        if not version.parent:
            return b"object %d" % (version.base or 0)
        try:
            directory = self._store.path_of(version.parent).rstrip(b"/")
        except HcfsError:
            directory = b"?"
        return directory + b"/" + version.name

    def shown(self, version: Version) -> str:
        """A version's path, quoted, for a line of the log."""
        path = printable(self.of_version(version).decode(errors="backslashreplace"))
        return f"'{path}'" if version.parent else path
