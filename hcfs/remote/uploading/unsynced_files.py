"""The register of a mount's published files that their origins don't have."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from typing import Any

from hcfs.cache import DOUBT, SYNC, SyncRecord
from hcfs.errors import HcfsError
from hcfs.filesystem.lock_files import is_lock_name
from hcfs.filesystem.versions.version import Name
from hcfs.filesystem.volume import Volume
from hcfs.store import BLOCK
from hcfs.store.errors import NoSuchObject

log = logging.getLogger(__name__)

SHOWN_MAX = 1000
"""Files listed one by one in an answer."""


class Unsynced:
    """A published file that its origin doesn't have. Guarded by the core's lock."""

    __slots__ = ("attempts", "gone", "halt", "last_error", "name", "namespace", "oid", "record", "sent", "uploading")

    def __init__(self, oid: int, namespace: int, name: Name, record: SyncRecord) -> None:
        self.oid = oid
        self.namespace = namespace
        self.name = name
        self.record = record
        self.uploading = False
        self.sent = 0
        """Bytes of the attempt under way."""
        self.attempts = 0
        self.last_error: str | None = None
        self.gone = False
        """Its name leads to something else by now, or to nothing: nobody wants it uploaded any more."""
        self.halt = threading.Event()
        """Set when an upload under way is to end at its next pause or piece."""

    @property
    def state(self) -> str:
        """As `user.hcfs.state` says it."""
        return "uploading" if self.uploading else "dirty" if self.record.reason is None else "sync-failed"


class UnsyncedFiles(ABC):
    """By object and by name. A content that is replaced is marked as gone. Guarded by the core's lock."""

    def __init__(self, core: Volume) -> None:
        self._core = core
        self._unsynced: dict[int, Unsynced] = {}
        self._by_name: dict[Name, Unsynced] = {}
        self._changed = threading.Condition(core.lock)

    @abstractmethod
    def _submit(self, unsynced: Unsynced) -> None:
        """Begin to upload a file. The core's lock is held; memory only."""

    def load(self) -> None:
        """Take over what an earlier mount left. The cache keeps it from eviction already. What it was replacing or
        removing at an origin when it crashed is dropped: it is fetched again if it is still there."""
        core = self._core
        with core.lock:
            unsynced = core.store.metadata.with_xattr(SYNC)
            for oid in {oid for oid, _ in core.store.metadata.with_xattr(DOUBT)} - {oid for oid, _ in unsynced}:
                for doubtful in core.store.names_of(oid):
                    core.store.unlink(*doubtful)
            for oid, value in unsynced:
                # Staging patterns may have changed since: what was published under a name that went out still goes.
                name = next((name for name in core.store.names_of(oid) if not is_lock_name(name[1])), None)
                if name is not None:
                    self.add(oid, name, SyncRecord.decode(value))
                    continue
                core.cache.let_go(oid)  # it stays here: the mark means nothing
                try:
                    core.store.replace_xattrs(oid, {SYNC: None})
                except HcfsError as error:
                    log.info("object %d keeps a mark of an upload that it isn't to have: %s", oid, error)

    def add(self, oid: int, name: Name, record: SyncRecord) -> None:
        """A file was published that its origin doesn't have; what its name led to before is gone. The core's lock is
        held; memory only."""
        self.forget(name)
        unsynced = Unsynced(oid, self._core.store.namespace_of(oid), name, record)
        self._unsynced[oid] = self._by_name[name] = unsynced
        if record.reason is None:
            self._submit(unsynced)

    def forget(self, name: Name) -> None:
        """A name leads to another content from now on, or to none: what it led to need not be uploaded. The core's
        lock is held."""
        unsynced = self._by_name.pop(name, None)
        if unsynced is not None:
            unsynced.gone = True
            unsynced.halt.set()
            del self._unsynced[unsynced.oid]
            self._core.cache.let_go(unsynced.oid)
            self._changed.notify_all()

    def forget_removed(self, namespace: int) -> None:
        """The same for all of a namespace that is no longer what its name leads to. The core's lock is held."""
        for unsynced in self.of(namespace):
            if not self._is_current(unsynced):
                self.forget(unsynced.name)

    def _is_current(self, unsynced: Unsynced) -> bool:
        """Whether it is what its name leads to. Lock held."""
        try:
            return not unsynced.gone and self._core.store.lookup(*unsynced.name) == unsynced.oid
        except HcfsError:
            return False  # its directory is gone

    def at(self, name: Name) -> Unsynced | None:
        """What a name leads to, if its origin doesn't have it. The core's lock is held."""
        return self._by_name.get(name)

    def get(self, oid: int) -> Unsynced | None:
        """An unsynced file by its id. The core's lock is held."""
        return self._unsynced.get(oid)

    def of(self, namespace: int) -> list[Unsynced]:
        """All of a namespace, the oldest first. The core's lock is held."""
        return [each for each in self._unsynced.values() if each.namespace == namespace]

    def status(self, namespace: int) -> dict[str, Any]:
        """Counts of what a namespace's origin doesn't have, what is on its way, and what was given up."""
        with self._core.lock:
            unsynced = self.of(namespace)
            uploading = [each for each in unsynced if each.uploading]
            failed = [each for each in unsynced if each.state == "sync-failed"]
            return {
                "unsynced_objects": len(unsynced),
                "unsynced_bytes": self._core.cache.unsynced_bytes(namespace),
                "failed_objects": len(failed),
                "uploading": [self.shown(each) for each in uploading],
                "failed": [self.shown(each) for each in failed[:SHOWN_MAX]],
            }

    def shown(self, unsynced: Unsynced) -> dict[str, Any]:
        """One file, for answers. The core's lock is held."""
        try:
            size = self._core.store.attributes(unsynced.oid).blocks * BLOCK
        except NoSuchObject:
            size = 0
        return {
            "path": self._path(unsynced),
            "state": unsynced.state,
            "bytes": size,
            "sent_bytes": unsynced.sent if unsynced.uploading else 0,
            "attempts": unsynced.attempts,
            "reason": unsynced.record.reason or unsynced.last_error,
        }

    def _path(self, unsynced: Unsynced) -> str:
        """Below the namespace."""
        try:
            path = self._core.store.path_of(unsynced.name[0]) + b"/" + unsynced.name[1]
        except HcfsError:
            path = b"?/" + unsynced.name[1]
        return path.partition(b"/")[2].decode(errors="backslashreplace")

    def _set_record(self, unsynced: Unsynced, record: SyncRecord) -> None:
        """What can't be written down counts until the mount ends: the file is dirty then, and is uploaded again."""
        unsynced.record = record
        try:
            self._core.store.replace_xattrs(unsynced.oid, {SYNC: record.encode()})
        except HcfsError as error:
            log.info("what became of the upload of %s isn't kept: %s", self._path(unsynced), error)
