"""What closes lead to in a local namespace; and which way that is for a version."""

from __future__ import annotations

import errno
import logging

from hcfs.filesystem.calls import Blocking, CallError
from hcfs.filesystem.paths import Paths
from hcfs.filesystem.versions.policy import Closing, Policies
from hcfs.filesystem.versions.publisher import Publisher, unexpected
from hcfs.filesystem.versions.version import Fate, Version, Versions
from hcfs.filesystem.volume import Volume

log = logging.getLogger(__name__)


class LocalClosing:
    """A Closing: publish on this device, at once where it is sealed, else in the background."""

    def __init__(self, volume: Volume, publisher: Publisher, paths: Paths) -> None:
        self._volume = volume
        self._lock = volume.lock
        self._publisher = publisher
        self._paths = paths

    def flush(self, version: Version) -> Blocking[None] | None:
        """Blocking while it seals; it doesn't wait for writes under way. The errno of a version that has failed."""
        with self._lock:
            self._publisher.abandon_if_killed(version)
            if version.fate is Fate.ABANDONED:
                raise CallError(errno.EIO)
            if version.failed:
                raise CallError(version.failed)
            if not version.is_staged or version.flushed or version.writing:
                # While a write is under way this isn't the last close. Waiting for that write would hold up whoever
                # inherited the descriptor, as a fork does within its exec.
                return None
            if not version.modified:
                version.flushed_changes = version.changes
                return None
        return Blocking(lambda: self._publisher.seal(version, as_flush=True))

    def last_writer_closed(self, version: Version, *, used: bool) -> None:
        publisher = self._publisher
        version.closed_at = self._volume.clock()
        if version.failed:
            if not version.staging:
                publisher.abandon(version)
        elif not version.modified:
            publisher.drop_unmodified(version)
        elif version.staging and version.flushed:
            publisher.retire_leftovers(version.parent, version.name, keep=version)
        elif version.flushed:
            publisher.publish_or_abandon(version)
        elif not used:
            log.info("the process that opened %s was killed within the call: abandoned", self._paths.shown(version))
            publisher.abandon(version)
        else:
            # Written through a mapping after the last FLUSH: sealing waits for the device, and RELEASE may not.
            version.closing = True
            self._volume.background.run(lambda: self._finish(version))

    def _finish(self, version: Version) -> None:
        """Lock not held."""
        try:
            self._publisher.seal(version, as_flush=True)
        except BaseException as error:
            what, where = unexpected(error), self._paths.shown(version)
            if what is not None or version.is_staged:  # else somebody removed it meanwhile
                log.warning("%s is abandoned: its last writes can't be kept: %s", where, error, exc_info=what)
        with self._lock:
            version.closing = False
            if version.is_staged and not version.writers:
                if version.failed:
                    self._publisher.abandon(version)
                elif not version.staging:
                    self._publisher.publish_or_abandon(version)


class Closings:
    """The way that a version's closes go, by its namespace; and the count of its handles."""

    def __init__(self, local: LocalClosing, policies: Policies, publisher: Publisher, versions: Versions) -> None:
        self._local = local
        self._policies = policies
        self._publisher = publisher
        self._versions = versions

    def of(self, version: Version) -> Closing:
        """For this version."""
        policy = self._policies.of(version.staged.namespace)
        return self._local if policy is None else policy.closing

    def let_go(self, version: Version, *, writer: bool, used: bool = True) -> None:
        """One handle less. used: something was written through it, or a descriptor of it closed. Lock held."""
        version.handles -= 1
        if writer:
            version.writers -= 1
            if not version.writers and version.is_staged:
                self.of(version).last_writer_closed(version, used=used)
        if version.handles:
            return
        if version.fate is Fate.NAMELESS:
            self._publisher.discard(version)
        elif not version.is_staged:
            self._versions.forget(version)
            if version.pin is not None:
                version.pin.release()
