"""What may be commanded through the control file."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import asdict

from hcfs.errors import UsageError
from hcfs.mount.answers import CallError
from hcfs.mount.control import Answer, Command, Progress
from hcfs.mount.filesystem import Filesystem
from hcfs.mount.scrubbing import Scrubbing
from hcfs.mount.syncing import Syncing
from hcfs.store import BLOCK, ROOT_ID, Kind
from hcfs.store.errors import StoreError
from hcfs.store.wipe import Wipe

PATIENCE_S = 10.0
"""Seconds for which a wipe waits for files that are open."""


class Administration:
    """Commands over a filesystem, by name. Each blocks in the thread that brings it, holds no lock while it waits, and
    ends early, at the next piece of its work, when it is told to."""

    def __init__(self, filesystem: Filesystem, scrubbing: Scrubbing) -> None:
        self._fs = filesystem
        self._scrubbing = scrubbing

    def commands(self) -> Mapping[str, Callable[[Command], Answer]]:
        """For Control."""
        return {
            "evict": self.evict,
            "remove": self.remove,
            "scrub": self._scrubbing.command,
            "sync": Syncing(self._fs, self._namespace).command,
        }

    def evict(self, command: Command) -> Answer:
        """Words: namespace; bytes, or without them all that can go. What went is durable when this returns."""
        name, nbytes = command.words.text("namespace"), command.words.count("bytes")
        command.words.end()
        namespace = self._namespace(name)
        self._fs.store.require_writable()
        evicted = self._fs.cache.evict_namespace(namespace, nbytes, command.stopped)
        return {
            "freed_bytes": evicted.nbytes,
            "objects": evicted.objects,
            "kept": asdict(self._fs.cache.kept(namespace)),
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
        fs, namespace = self._fs, self._namespace(name)
        fs.store.require_writable()
        inside = fs.count_below(namespace)
        if inside and not force:
            raise CallError(
                errno.ENOTEMPTY, f"namespace {name!r} holds {inside} files: give --force if they are to go with it"
            )
        unsynced = fs.cache.unsynced_bytes(namespace)
        if unsynced and not discard:
            raise CallError(
                errno.EBUSY,
                f"namespace {name!r} holds {unsynced} bytes that its origin doesn't have yet: wait for them with 'hcfs "
                "sync --wait', or give --discard if they are to be lost",
            )
        command.progress = self._removal(namespace)
        try:
            removed = fs.remove_below(namespace, command.stopped, files=force)
        finally:
            fs.forget_unsynced(namespace)
        answer = {"removed": False, "objects": removed.objects, "freed_bytes": removed.blocks * BLOCK}
        if wipe and not command.stopped():
            fs.purge_quarantined_of(name.encode(errors="surrogateescape"))
            fs.store.commit()
            wipe_pass = Wipe(fs.store, namespace)
            command.progress = lambda: Progress("wipe", wipe_pass.passed_bytes, wipe_pass.total_bytes)
            wiped = wipe_pass.run(PATIENCE_S if patience is None else patience, command.stopped)
            answer |= asdict(wiped)
            if not wiped.complete:
                # Also when it was told to wait no longer for what is open.
                return {**answer, "stopped": wiped.stopped or command.stopped()}
        if command.stopped():
            return {**answer, "stopped": True}
        fs.remove_namespace(namespace, name.encode(errors="surrogateescape"))
        fs.store.commit()
        if wipe:
            fs.store.rewrite_metadata()
        return {**answer, "removed": True}

    def _removal(self, namespace: int) -> Callable[[], Progress]:
        usage = self._fs.cache.namespaces.usage
        total = usage(namespace).used_bytes
        return lambda: Progress("remove", max(0, total - usage(namespace).used_bytes), total)

    def _namespace(self, name: str) -> int:
        """Id of a namespace; UsageError when there is none of that name."""
        try:
            encoded = name.encode(errors="surrogateescape")
            found = self._fs.store.lookup(ROOT_ID, encoded) if encoded else None
            if found is not None and self._fs.store.attributes(found).kind is Kind.DIRECTORY:
                return found
        except (StoreError, UnicodeEncodeError):
            pass
        raise UsageError(f"there is no namespace {name!r}")
