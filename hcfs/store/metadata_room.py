"""Room for metadata: what the index takes, and what is promised to objects that are being written."""

from __future__ import annotations

import logging
import time

from hcfs.store.errors import MetadataFull
from hcfs.store.ledger import Ledger
from hcfs.store.locking import lock_held

log = logging.getLogger(__name__)

FULL_SILENCE = 60.0
"""Seconds between two lines of the log about full metadata"""


class MetadataRoom:
    """How much more metadata a checkpoint of the store could hold. Memory only; thread-safe."""

    def __init__(self, ledger: Ledger) -> None:
        self.lock = ledger.lock
        self._ledger = ledger
        self.reserved_bytes = 0
        """Promised to sealed objects"""
        self.reserved_objects = 0
        self.unreserved_objects = 0
        """Staged ones that will need a row and have none reserved yet"""
        self._silent_until = 0.0

    @property
    def used_bytes(self) -> int:
        """About what a checkpoint would take now."""
        return self._ledger.index.checkpoint_bytes

    @lock_held
    def shortage(self, more_bytes: int, more_objects: int) -> str:
        """Why so much more metadata has no room, "" when it has. Lock held."""
        index, superblock = self._ledger.index, self._ledger.superblock
        objects = index.table.objects + self.reserved_objects
        if more_objects and objects + more_objects > superblock.max_objects:
            return f"the store holds {objects} objects, its limit (max_objects) set by mkfs"
        limit = superblock.metadata_limit
        if index.checkpoint_bytes + self.reserved_bytes + more_bytes > limit:
            return f"the metadata region is full ({limit} bytes for {objects} objects)"
        return ""

    @lock_held
    def require(self, more_bytes: int, more_objects: int) -> None:
        """Raises MetadataFull. A new object also leaves room for those that were begun. Lock held."""
        shortage = self.shortage(more_bytes, more_objects + self.unreserved_objects if more_objects else 0)
        if shortage:
            raise MetadataFull(
                f"{self._ledger.device.name}: {shortage}; remove objects, or format with a larger --max-objects"
            )

    def note_full(self, error: MetadataFull) -> None:
        """Say in the log that metadata has no room and nothing could be evicted; once a minute, however many calls fail
        for it."""
        if time.monotonic() >= self._silent_until:
            self._silent_until = time.monotonic() + FULL_SILENCE
            log.warning("%s", error)
