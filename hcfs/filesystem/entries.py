"""The answers that name a file: its attributes, and for how long the kernel may keep them."""

from __future__ import annotations

from hcfs.filesystem.calls import Entry
from hcfs.filesystem.lock_files import LockFiles
from hcfs.filesystem.versions.version import Fate, Version
from hcfs.store import Attributes, Kind, Store

DIRECTORY_ATTR_TIMEOUT = 1.0
"""Seconds. Publishing and eviction change a directory's times and links without the kernel's doing."""

ABSENT_ENTRY = Entry(0, None, 0.0, 0.0)
"""There is no such name, and the kernel is to ask again."""


class Entries:
    """Of versions, and of committed objects. Memory only; the lock is held."""

    def __init__(self, store: Store, lock_files: LockFiles, entry_timeout: float) -> None:
        """entry_timeout: seconds for which the kernel may answer for committed and for absent names."""
        self._store = store
        self._lock_files = lock_files
        self.entry_timeout = entry_timeout
        self._absent = Entry(0, None, entry_timeout, 0.0)

    def attributes_of_version(self, version: Version) -> Attributes:
        """A version's attributes as its writer sees them."""
        attributes = version.staged.attributes()
        return attributes._replace(nlink=0) if version.fate is Fate.NAMELESS else attributes

    def attributes_of_object(self, oid: int) -> Attributes:
        """A committed object's attributes, or a lock file's present ones. NoSuchObject (ESTALE) when it is gone."""
        lock_file = self._lock_files.get(oid)
        if lock_file is not None:
            return lock_file.attributes()
        attributes = self._store.attributes(oid)
        if attributes.kind is Kind.SYMLINK:
            return attributes._replace(size=len(self._store.readlink(oid)))
        return attributes

    def of_version(self, version: Version) -> Entry:
        """The answer that names a version: the kernel keeps nothing of it."""
        return Entry(version.ino, self.attributes_of_version(version), 0.0, 0.0)

    def of_new_version(self, version: Version) -> Entry:
        """The answer that makes a version: the kernel's permission check of the same open needs no second question.
        Only the writer's process reaches the inode yet, and its own writes end what the kernel knows of it."""
        return Entry(version.ino, self.attributes_of_version(version), 0.0, DIRECTORY_ATTR_TIMEOUT)

    def of_object(self, attributes: Attributes, *, fleeting: bool) -> Entry:
        """The answer that names a committed object. fleeting: its name has versions, so others may be answered
        something else."""
        if fleeting:
            return Entry(attributes.id, attributes, 0.0, 0.0)
        return Entry(attributes.id, attributes, self.entry_timeout, self._attr_timeout(attributes))

    def of_nothing(self, *, fleeting: bool) -> Entry:
        """The answer for an absent name. fleeting: somebody is writing it."""
        return ABSENT_ENTRY if fleeting else self._absent

    def _attr_timeout(self, attributes: Attributes) -> float:
        if attributes.kind is Kind.DIRECTORY:
            return min(DIRECTORY_ATTR_TIMEOUT, self.entry_timeout)
        return 0.0 if attributes.id in self._lock_files else self.entry_timeout
