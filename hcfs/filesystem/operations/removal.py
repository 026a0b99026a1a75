"""Removing a whole namespace, whoever uses it."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hcfs.errors import HcfsError
from hcfs.filesystem.calls import CallError
from hcfs.filesystem.versions.publisher import Publisher
from hcfs.filesystem.versions.version import Versions
from hcfs.filesystem.volume import Volume
from hcfs.store import ROOT_ID, Kind
from hcfs.store.errors import DirectoryNotEmpty

AT_ONCE = 64
"""Names removed under one hold of the lock: well below a millisecond, which is what a lookup may wait."""

VISITS = 10
"""To one directory, each of which finds something new: somebody goes on making files there."""


@dataclass(slots=True)
class Removed:
    """What went."""

    objects: int = 0
    """Files and symlinks."""
    blocks: int = 0


class Removal:
    """From memory, but in any number of pieces: called by threads that may take their time."""

    def __init__(self, volume: Volume, versions: Versions, publisher: Publisher) -> None:
        self._store = volume.store
        self._lock = volume.lock
        self._kernel = volume.kernel
        self._versions = versions
        self._publisher = publisher

    def count_below(self, directory: int) -> int:
        """How many files and symlinks a namespace has, those included that somebody is writing; a file with several
        names counts for each."""
        with self._lock:
            count = sum(
                version.staged.namespace == directory and version.is_staged and bool(version.writers)
                for version in self._versions
                if version.base is None
            )
        todo = [directory]
        while todo:
            for _, oid in self._store.list_directory(todo.pop()):
                if self._is_directory(oid):
                    todo.append(oid)
                else:
                    count += 1
        return count

    def remove_below(self, directory: int, stop: Callable[[], bool], *, files: bool) -> Removed:
        """Remove everything below a namespace's directory, until `stop()` is true. Open handles go on; versions that
        are being written lose their names. files: whether there may be any; else ENOTEMPTY at the first. EBUSY where
        others make files faster than they are removed."""
        removed, visits = Removed(), Counter[int]()
        path = [(directory, 0, b"")]
        while path and not stop():
            here, parent, name = path[-1]
            visits[here] += 1
            if visits[here] > VISITS:
                raise _busy()
            inside = self._remove_files(here, removed, stop, files=files)
            if inside:
                path += [(oid, here, name) for name, oid in inside]
                continue
            if parent:
                try:
                    self._remove_directory(here, parent, name)
                except DirectoryNotEmpty:
                    continue
            path.pop()
        return removed

    def remove_namespace(self, directory: int, name: bytes) -> None:
        """Remove a namespace that was emptied; EBUSY when something was made in it since."""
        try:
            self._remove_directory(directory, ROOT_ID, name)
        except DirectoryNotEmpty:
            raise _busy() from None

    def purge_quarantined_of(self, namespace: bytes) -> None:
        """Drop what is quarantined of a namespace, and that of which nobody knows where it was."""
        for each in self._store.removals.quarantined():
            if each.path.partition(b"/")[0] in (namespace, b""):
                self._store.removals.purge(each.id)

    def _remove_files(
        self, directory: int, removed: Removed, stop: Callable[[], bool], *, files: bool
    ) -> list[tuple[bytes, int]]:
        """Remove all but the directories from a directory, and what is staged there; the directories, as (name, id)."""
        try:
            entries = self._store.list_directory(directory)
        except HcfsError:  # removed by somebody else
            return []
        directories = []
        for start in range(0, len(entries), AT_ONCE):
            if stop():
                break
            gone = []
            with self._lock:
                for name, oid in entries[start : start + AT_ONCE]:
                    if self._store.lookup(directory, name) != oid:
                        continue
                    if self._is_directory(oid):
                        directories.append((name, oid))
                        continue
                    if not files:
                        raise CallError(errno.ENOTEMPTY, "somebody has just made a file there")
                    attributes = self._store.attributes(oid)
                    removed.objects += 1
                    removed.blocks += attributes.blocks if attributes.nlink == 1 else 0
                    self._store.unlink(directory, name)
                    gone.append(name)
            for name in gone:
                self._kernel.forget_name(directory, name)
        with self._lock:
            for version in self._versions.in_directory(directory):
                self._publisher.unname(version)
        return directories

    def _remove_directory(self, directory: int, parent: int, name: bytes) -> None:
        """DirectoryNotEmpty, with nothing removed, while it has a committed entry."""
        with self._lock:
            if self._store.lookup(parent, name) != directory:
                return
            self._store.rmdir(parent, name)
            for version in self._versions.in_directory(directory):
                self._publisher.unname(version)
        self._kernel.forget_name(parent, name)

    def _is_directory(self, oid: int) -> bool:
        try:
            return self._store.attributes(oid).kind is Kind.DIRECTORY
        except HcfsError:
            return False


def _busy() -> CallError:
    return CallError(errno.EBUSY, "others go on making files there: stop them, and try again")
