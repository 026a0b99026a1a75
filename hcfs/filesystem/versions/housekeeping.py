"""Versions that nobody comes back for, and those that are left when the mount ends."""

from __future__ import annotations

import logging

from hcfs.filesystem.paths import Paths
from hcfs.filesystem.versions.closing import Closings
from hcfs.filesystem.versions.estale_retries import EstaleRetries
from hcfs.filesystem.versions.publisher import Publisher
from hcfs.filesystem.versions.version import Fate, Version, Versions
from hcfs.filesystem.volume import Volume
from hcfs.host.process import holds_open

log = logging.getLogger(__name__)

UNOPENED_LIFE = 5.0
"""Seconds: the kernel repeats an open that was answered with ESTALE at once, or its process has died meanwhile."""


class Housekeeping:
    """Takes the lock. Memory only."""

    def __init__(
        self,
        volume: Volume,
        versions: Versions,
        retries: EstaleRetries,
        publisher: Publisher,
        closings: Closings,
        paths: Paths,
        *,
        staging_ttl: float,
    ) -> None:
        """staging_ttl: seconds for which a closed version waits for its rename."""
        self._volume = volume
        self._versions = versions
        self._retries = retries
        self._publisher = publisher
        self._closings = closings
        self._paths = paths
        self._staging_ttl = staging_ttl

    def reap(self) -> int:
        """Reclaim versions that nobody will come back for; how many. An open write handle keeps any, however old."""
        now = self._volume.clock()
        with self._volume.lock:
            self._retries.expire(now)
            expired = [version for version in self._versions if self._expired(version, now)]
            for version in expired:
                if not version.modified:
                    self._publisher.drop_unmodified(version)
                    continue
                log.info("%s waited %g s for its rename: reclaimed", self._paths.shown(version), self._staging_ttl)
                self._publisher.unname(version)
        return len(expired)

    def _expired(self, version: Version, now: float) -> bool:
        if not version.is_staged or version.writers or version.closing:
            return False
        if not version.opened:
            return now - version.created_at > UNOPENED_LIFE
        return version.closed_at is not None and now - version.closed_at > self._staging_ttl

    def publish_closed(self) -> None:
        """The connection to the kernel has ended, and with it the notices (RELEASE) of closes that have returned
        already: publish what was sealed by its last close and isn't open any more."""
        with self._volume.lock:
            for version in self._versions:
                closed = version.is_staged and version.writers and version.flushed
                if closed and not holds_open(version.ino, self._volume.device):
                    self._closings.of(version).last_writer_closed(version, used=True)

    def abandon_all(self) -> None:
        """The mount ends: what isn't published never will be."""
        with self._volume.lock:
            for version in self._versions:
                if version.is_staged:
                    self._publisher.abandon(version)
                elif version.fate is Fate.NAMELESS:
                    version.staged.abandon()
