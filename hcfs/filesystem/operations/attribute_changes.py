"""SETATTR: modes, owners, times, and sizes."""

from __future__ import annotations

import errno
from typing import NamedTuple

from hcfs.errors import HcfsError
from hcfs.filesystem.calls import Blocking, Caller, CallError, Entry
from hcfs.filesystem.entries import Entries
from hcfs.filesystem.handles.table import Handles
from hcfs.filesystem.handles.version_handle import VersionHandle
from hcfs.filesystem.identity import CallerIdentity
from hcfs.filesystem.lock_files import LockFile, LockFiles
from hcfs.filesystem.modes import drop_privileges, without_privileges
from hcfs.filesystem.operations.lookup import Lookup
from hcfs.filesystem.versions.closing import Closings
from hcfs.filesystem.versions.drafting import Drafting
from hcfs.filesystem.versions.estale_retries import EstaleRetries
from hcfs.filesystem.versions.publisher import Publisher
from hcfs.filesystem.versions.version import Fate, Version, Versions
from hcfs.filesystem.volume import Volume
from hcfs.store import Attributes, Kind


class Changes(NamedTuple):
    """What is to be changed; None leaves as it is."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    size: int | None = None
    atime_ns: int | None = None
    mtime_ns: int | None = None

    def attributes(self) -> dict[str, int]:
        """All but the size, as the store takes them."""
        return {name: value for name, value in self._asdict().items() if value is not None and name != "size"}


class AttributeChanges:
    """A change of size is a write; the others belong to the object, or to the version that the caller has of it."""

    def __init__(
        self,
        volume: Volume,
        versions: Versions,
        retries: EstaleRetries,
        drafting: Drafting,
        publisher: Publisher,
        closings: Closings,
        entries: Entries,
        lookup: Lookup,
        handles: Handles,
        lock_files: LockFiles,
    ) -> None:
        self._store = volume.store
        self._lock = volume.lock
        self._versions = versions
        self._retries = retries
        self._drafting = drafting
        self._publisher = publisher
        self._closings = closings
        self._entries = entries
        self._lookup = lookup
        self._handles = handles
        self._lock_files = lock_files

    def setattr(self, ino: int, changes: Changes, number: int | None, caller: Caller) -> Entry | Blocking[Entry]:
        """Change attributes. Blocking when the size changes. number: the handle of an ftruncate.

        ESTALE as for a write-open, when the size of a committed object is to change.
        """
        if changes.size is None or number is not None:
            with self._lock:
                return self._set(ino, changes, number, caller)
        with self._lock:
            try:
                entry = self._set(ino, changes, None, caller)
            except HcfsError as error:
                self._retries.refused(error, caller.thread, writes=True)
                raise
            self._retries.end(caller.thread)
            return entry

    def _set(self, ino: int, changes: Changes, number: int | None, caller: Caller) -> Entry | Blocking[Entry]:
        version = self._versions.get(ino)
        if version is not None and version.is_open_to_calls:
            return self._set_on_version(version, changes, number, CallerIdentity(caller))
        attributes = self._entries.attributes_of_object(ino)
        if changes.size is not None:
            return self._resize_object(ino, attributes.kind, changes, number, caller)
        self._store.set_attributes(ino, **_owned_anew(changes, attributes).attributes())
        return self._lookup.getattr(ino)

    def _resize_object(
        self, ino: int, kind: Kind, changes: Changes, number: int | None, caller: Caller
    ) -> Blocking[Entry]:
        if kind is not Kind.FILE:
            raise CallError(errno.EISDIR if kind is Kind.DIRECTORY else errno.EINVAL)
        if self._lock_files.is_one(ino):
            lock_file = self._lock_files.hold(ino)
            return Blocking(lambda: self._resized_lock(lock_file, changes))
        if number is not None and isinstance(self._handles.get(number), VersionHandle):
            raise CallError(errno.EIO)  # it was published meanwhile
        if changes.size is not None:
            self._store.require_possible_size(changes.size)
        self._drafting.of_object(ino, CallerIdentity(caller))
        raise CallError(errno.ESTALE)

    def _set_on_version(
        self, version: Version, changes: Changes, number: int | None, who: CallerIdentity
    ) -> Entry | Blocking[Entry]:
        if version.fate is Fate.ABANDONED:
            raise CallError(errno.EIO)
        if changes.size is None:
            _set_version_attributes(version, changes)
            return self._entries.of_version(version)
        self._publisher.require_possible(version, changes.size)
        if number is None and not version.belongs_to(who.process) and version.is_staged:
            self._drafting.take_over(version, who, truncates=False)
        if who.caller.uid:
            drop_privileges(version.staged)
        # Counted as opened until it is done, so that nothing reclaims it meanwhile.
        version.opened = True
        version.handles += 1
        version.writers += 1
        return Blocking(lambda: self._resized(version, changes))

    def _resized(self, version: Version, changes: Changes) -> Entry:
        """Without a handle there is no close that could publish it, so this does. Lock not held."""
        assert changes.size is not None
        publisher = self._publisher
        try:
            with publisher.change(version):
                version.staged.truncate(changes.size)
            with self._lock:
                _set_version_attributes(version, changes._replace(size=None))
                by_path = version.writers == 1 and version.is_staged
            if by_path:
                publisher.seal(version, as_flush=True)
            with self._lock:
                alone = version.writers == 1 and version.is_staged
                if alone and version.flushed and not version.staging:
                    publisher.publish(version, version.parent, version.name)
                # Now, while nobody can remove what was published.
                return self._lookup.getattr(version.ino)
        finally:
            with self._lock:
                self._closings.let_go(version, writer=True)

    def _resized_lock(self, lock_file: LockFile, changes: Changes) -> Entry:
        """Lock not held."""
        assert changes.size is not None
        try:
            lock_file.truncate(changes.size)
            lock_file.settle()
            attributes = changes.attributes()
            if attributes:
                self._store.set_attributes(lock_file.oid, **attributes)
            return self._lookup.getattr(lock_file.oid)
        finally:
            self._lock_files.let_go(lock_file)


def _owned_anew(changes: Changes, attributes: Attributes) -> Changes:
    """A file that gets another owner loses setuid and setgid, which the kernel leaves to us."""
    if attributes.kind is not Kind.FILE or changes.mode is not None or (changes.uid, changes.gid) == (None, None):
        return changes
    kept = without_privileges(attributes.mode)
    return changes if kept == attributes.mode else changes._replace(mode=kept)


def _set_version_attributes(version: Version, changes: Changes) -> None:
    attributes = _owned_anew(changes, version.staged.attributes()).attributes()
    if attributes:
        version.staged.set_attributes(**attributes)
