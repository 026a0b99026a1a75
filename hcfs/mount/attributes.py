"""SETATTR: modes, owners, times, and sizes."""

from __future__ import annotations

import errno
from contextlib import nullcontext
from typing import NamedTuple

from hcfs.mount.answers import Blocking, Caller, CallError, Entry
from hcfs.mount.core import Identity
from hcfs.mount.data import Data
from hcfs.mount.handles import VersionHandle
from hcfs.mount.lockfiles import LockFile
from hcfs.mount.opening import without_privileges
from hcfs.mount.versions import Fate, Version
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


class AttributeChanges(Data):
    """A change of size is a write; the others belong to the object, or to the version that the caller has of it."""

    def setattr(self, ino: int, changes: Changes, number: int | None, caller: Caller) -> Entry | Blocking[Entry]:
        """Change attributes. Blocking when the size changes. number: the handle of an ftruncate.

        ESTALE as for a write-open, when the size of a committed object is to change.
        """
        by_path = changes.size is not None and number is None
        with self.lock, self.repeatable(caller, writes=True) if by_path else nullcontext():
            version = self.versions.get(ino)
            if version is not None and version.fate is not Fate.PUBLISHED:
                return self._set_on_version(version, changes, number, Identity(caller))
            attributes = self.object_attributes(ino)
            if changes.size is not None:
                if attributes.kind is not Kind.FILE:
                    raise CallError(errno.EISDIR if attributes.kind is Kind.DIRECTORY else errno.EINVAL)
                if ino in self.lock_files or self._named_as_lock(ino):
                    return self._resize_lock(ino, changes)
                if number is not None and isinstance(self.handles.get(number), VersionHandle):
                    raise CallError(errno.EIO)
                self.version_for_writing(ino, Identity(caller))
                raise CallError(errno.ESTALE)
            self.store.set_attributes(ino, **self._owned_anew(changes, attributes).attributes())
            return self.getattr(ino)

    def _set_on_version(
        self, version: Version, changes: Changes, number: int | None, who: Identity
    ) -> Entry | Blocking[Entry]:
        if version.fate is Fate.ABANDONED:
            raise CallError(errno.EIO)
        if changes.size is None:
            self._set_version_attributes(version, changes)
            return self.version_entry(version)
        if number is None and not self._is_mine(version, who) and version.fate is Fate.STAGED:
            self._take_over(version, 0, who)
        if who.caller.uid:
            self.drop_privileges(version)
        # Counted as opened until it is done, so that nothing reclaims it meanwhile.
        version.opened = True
        version.handles += 1
        version.writers += 1
        return Blocking(lambda: self._resize_version(version, changes))

    def _owned_anew(self, changes: Changes, attributes: Attributes) -> Changes:
        """A file that gets another owner loses setuid and setgid, which the kernel leaves to us."""
        if attributes.kind is not Kind.FILE or changes.mode is not None or (changes.uid, changes.gid) == (None, None):
            return changes
        kept = without_privileges(attributes.mode)
        return changes if kept == attributes.mode else changes._replace(mode=kept)

    def _set_version_attributes(self, version: Version, changes: Changes) -> None:
        attributes = self._owned_anew(changes, version.staged.attributes()).attributes()
        if attributes:
            version.staged.set_attributes(**attributes)

    def _resize_version(self, version: Version, changes: Changes) -> Entry:
        """Without a handle there is no close that could publish it, so this does."""
        assert changes.size is not None
        try:
            self.truncate_version(version, changes.size)
            with self.lock:
                self._set_version_attributes(version, changes._replace(size=None))
                by_path = version.writers == 1 and version.fate is Fate.STAGED
            if by_path:
                self.seal(version, as_flush=True)
            with self.lock:
                alone = version.writers == 1 and version.fate is Fate.STAGED
                if alone and version.flushed and not version.staging:
                    self._publish(version, version.parent, version.name)
                # Now, while nobody can remove what was published.
                return self.getattr(version.ino)
        finally:
            with self.lock:
                self._let_go(version, writer=True)

    def _resize_lock(self, ino: int, changes: Changes) -> Blocking[Entry]:
        lock_file = self.lock_file(ino)
        return Blocking(lambda: self._resized_lock(lock_file, changes))

    def _resized_lock(self, lock_file: LockFile, changes: Changes) -> Entry:
        assert changes.size is not None
        try:
            lock_file.truncate(changes.size)
            lock_file.settle()
            attributes = changes.attributes()
            if attributes:
                self.store.set_attributes(lock_file.oid, **attributes)
            return self.getattr(lock_file.oid)
        finally:
            self._release_lock(lock_file)
