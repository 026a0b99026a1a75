"""STATFS: how much room there is."""

from __future__ import annotations

from hcfs.filesystem.calls import Statfs
from hcfs.filesystem.volume import Volume
from hcfs.store import BLOCK


class Capacity:
    """From memory."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume

    def space(self) -> Statfs:
        """Blocks and files, free and in all. What could be evicted counts as available, not as free."""
        usage = self._volume.store.usage()
        evictable = self._volume.cache.statistics().evictable_bytes
        return Statfs(
            blocks=usage.capacity // BLOCK,
            free=usage.free // BLOCK,
            available=(usage.free + evictable) // BLOCK,
            files=usage.max_objects,
            files_free=max(1, usage.max_objects - usage.objects + usage.files),
        )
