"""OPENDIR and READDIR."""

from __future__ import annotations

from hcfs.errors import HcfsError
from hcfs.filesystem.calls import Blocking, Caller, Entry, Opened
from hcfs.filesystem.entries import Entries
from hcfs.filesystem.handles.directory_handle import DirectoryHandle, Lister, NameListing
from hcfs.filesystem.handles.table import Handles
from hcfs.filesystem.identity import CallerIdentity
from hcfs.filesystem.operations.lookup import Lookup
from hcfs.filesystem.paths import Paths
from hcfs.filesystem.versions.version import Versions
from hcfs.filesystem.volume import Volume
from hcfs.store import Kind

LISTED_TIMEOUT = 5.0
"""Seconds for which the kernel may answer for what it learned from a listing. Listing everything mustn't protect
everything from eviction, as lookups do, and `ls -l` looks up all that it listed; so what was only listed is looked up
again before long, and not at once."""


class DirectoryListing:
    """All from memory. A Lister."""

    def __init__(
        self, volume: Volume, versions: Versions, entries: Entries, lookup: Lookup, handles: Handles, paths: Paths
    ) -> None:
        self._volume = volume
        self._store = volume.store
        self._lock = volume.lock
        self._versions = versions
        self._entries = entries
        self._lookup = lookup
        self._handles = handles
        self._paths = paths

    def opendir(
        self,
        ino: int,
        caller: Caller,
        lister: Lister | None = None,
        fixed: tuple[tuple[bytes, int], ...] = (),
    ) -> Opened:
        """Open a directory for listing: its committed names, and the caller's own versions that aren't under staging
        names. lister: who says what else is in it, if not this. fixed: names and inodes of what is beside."""
        who = CallerIdentity(caller)
        with self._lock:
            pin, parent = self._store.pin(ino), self._store.parent_of(ino)
            own = [
                (version.name, version.ino)
                for version in self._versions.in_directory(ino)
                if version.opened and not version.staging and version.owner is not None and version.owner == who.process
            ]
        return Opened(self._handles.add(DirectoryHandle(ino, parent, [*own, *fixed], lister or self, pin)))

    def begin_listing(self, directory: int) -> Blocking[None] | None:
        """Nothing has to be waited for."""
        return None

    def names_in(self, directory: int) -> NameListing:
        """Begin a listing of a directory's committed names."""
        return self._store.listing(directory)

    def led_to(self, directory: int, batch: list[tuple[bytes, int]]) -> list[Entry | None]:
        """What each of (name, inode) leads to, None for what was removed."""
        with self._lock, self._store.atomically():
            return [self.led_to_one(directory, name, ino) for name, ino in batch]

    def led_to_one(self, directory: int, name: bytes, ino: int) -> Entry | None:
        """One of them. Both locks held."""
        version = self._versions.get(ino)
        if version is not None and version.is_staged and version.key == (directory, name):
            return self._entries.of_version(version)
        try:
            oid = self._store.lookup(directory, name)
            if oid is None:
                return None
            attributes = self._entries.attributes_of_object(oid)
        except HcfsError:
            return None
        entry = self._entries.of_object(attributes, fleeting=bool(self._versions.of_name(directory, name)))
        if attributes.kind is Kind.DIRECTORY or entry.entry_timeout <= LISTED_TIMEOUT:
            return entry
        return entry._replace(entry_timeout=LISTED_TIMEOUT)

    def getattr(self, ino: int) -> Entry:
        return self._lookup.getattr(ino)

    def path(self, directory: int) -> bytes:
        return self._paths.of(directory)
