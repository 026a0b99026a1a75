"""What may be commanded through the control file."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import asdict

from hcfs.daemon.scrubbing import Scrubbing
from hcfs.daemon.setting import Setting
from hcfs.daemon.syncing import Syncing
from hcfs.errors import UsageError
from hcfs.filesystem.calls import CallError
from hcfs.filesystem.filesystem import Filesystem
from hcfs.filesystem.places.control import Answer, Command, Progress
from hcfs.remote.origins import Origins
from hcfs.store import BLOCK, ROOT_ID, Kind
from hcfs.store.errors import StoreError
from hcfs.store.wipe import Wipe

PATIENCE_S = 10.0
"""Seconds for which a wipe waits for files that are open."""


class Administration:
    """Commands over a filesystem, by name. Each blocks in the thread that brings it, holds no lock while it waits, and
    ends early, at the next piece of its work, when it is told to."""

    def __init__(self, filesystem: Filesystem, scrubbing: Scrubbing, origins: Origins | None) -> None:
        """origins: None where the mount has none."""
        self._store = filesystem.volume.store
        self._cache = filesystem.volume.cache
        self._lock = filesystem.volume.lock
        self._removal = filesystem.parts.removal
        self._origins = origins
        self._syncing = Syncing(filesystem, origins, self._namespace)
        self._setting = Setting(filesystem, self._namespace)
        self._scrubbing = scrubbing

    def commands(self) -> Mapping[str, Callable[[Command], Answer]]:
        """For Control."""
        return {
            "evict": self.evict,
            "remove": self.remove,
            "scrub": self._scrubbing.command,
            "set": self._setting.command,
            "sync": self._syncing.command,
        }

    def evict(self, command: Command) -> Answer:
        """Words: namespace; bytes, or without them all that can go. What went is durable when this returns."""
        name, nbytes = command.words.text("namespace"), command.words.count("bytes")
        command.words.end()
        namespace = self._namespace(name)
        self._store.require_writable()
        evicted = self._cache.evict_namespace(namespace, nbytes, command.stopped)
        return {
            "freed_bytes": evicted.nbytes,
            "objects": evicted.objects,
            "kept": asdict(self._cache.kept(namespace)),
            "stopped": command.stopped(),
        }

    def remove(self, command: Command) -> Answer:
        """Words: namespace; force, to remove what is in it; discard, also what its origin doesn't have; wipe, to leave
        no byte of it on the medium; patience, seconds for which a wipe waits for what is open. Nothing is removed at
        an origin.

        Everything goes from the namespace first, then from the medium, then the namespace itself: as long as it is
        there, something is left to do, and the command can be given again. What is answered is durable."""
        words = command.words
        name, force, wipe = words.text("namespace"), words.flag("force"), words.flag("wipe")
        discard = words.flag("discard")
        patience = words.count("patience")
        words.end()
        store, removal, namespace = self._store, self._removal, self._namespace(name)
        store.require_writable()
        inside = removal.count_below(namespace)
        if inside and not force:
            raise CallError(
                errno.ENOTEMPTY, f"namespace {name!r} holds {inside} files: give --force if they are to go with it"
            )
        unsynced = self._cache.unsynced_bytes(namespace)
        if unsynced and not discard:
            raise CallError(
                errno.EBUSY,
                f"namespace {name!r} holds {unsynced} bytes that its origin doesn't have yet: wait for them with 'hcfs "
                "sync --wait', or give --discard if they are to be lost",
            )
        command.progress = self._removed_of(namespace)
        try:
            removed = removal.remove_below(namespace, command.stopped, files=force)
        finally:
            self._forget_unsynced(namespace)
        answer = {"removed": False, "objects": removed.objects, "freed_bytes": removed.blocks * BLOCK}
        if wipe and not command.stopped():
            removal.purge_quarantined_of(name.encode(errors="surrogateescape"))
            store.commit()
            wipe_pass = Wipe(store, namespace)
            command.progress = lambda: Progress("wipe", wipe_pass.passed_bytes, wipe_pass.total_bytes)
            wiped = wipe_pass.run(PATIENCE_S if patience is None else patience, command.stopped)
            answer |= asdict(wiped)
            if not wiped.complete:
                # Also when it was told to wait no longer for what is open.
                return {**answer, "stopped": wiped.stopped or command.stopped()}
        if command.stopped():
            return {**answer, "stopped": True}
        removal.remove_namespace(namespace, name.encode(errors="surrogateescape"))
        store.commit()
        if wipe:
            store.durability.rewrite_metadata()
        return {**answer, "removed": True}

    def _forget_unsynced(self, namespace: int) -> None:
        """Files of a namespace were removed, whether its origin has them or not."""
        if self._origins is not None:
            with self._lock:
                self._origins.uploads.forget_removed(namespace)

    def _removed_of(self, namespace: int) -> Callable[[], Progress]:
        usage = self._cache.namespaces.usage
        total = usage(namespace).used_bytes
        return lambda: Progress("remove", max(0, total - usage(namespace).used_bytes), total)

    def _namespace(self, name: str) -> int:
        """Id of a namespace; UsageError when there is none of that name."""
        try:
            encoded = name.encode(errors="surrogateescape")
            found = self._store.lookup(ROOT_ID, encoded) if encoded else None
            if found is not None and self._store.attributes(found).kind is Kind.DIRECTORY:
                return found
        except (StoreError, UnicodeEncodeError):
            pass
        raise UsageError(f"there is no namespace {name!r}")
