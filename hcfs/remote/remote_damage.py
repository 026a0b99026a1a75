"""Damage to what is, or should be, at an origin too."""

from __future__ import annotations

from hcfs.cache import SYNC
from hcfs.errors import HcfsError
from hcfs.filesystem.volume import Volume
from hcfs.remote.origins import Origins


class RemoteDamage:
    """No lock is held. origins: None on a mount that has no way to one."""

    def __init__(self, volume: Volume, origins: Origins | None) -> None:
        self._lock = volume.lock
        self._store = volume.store
        self._origins = origins

    def keeps(self, oid: int, generation: int, reason: str) -> bool:
        """A file that its origin doesn't have keeps its name, and what of it verifies can be read: nobody else has it.
        Its upload is given up."""
        with self._lock, self._store.atomically():
            try:
                unsynced = self._store.get_xattr(oid, SYNC) is not None and not self._store.removals.is_quarantined(oid)
                current = unsynced and self._store.attributes(oid).generation == generation
            except HcfsError:
                return False
            found = self._origins.uploads.get(oid) if current and self._origins is not None else None
            if found is not None and self._origins is not None:
                self._origins.uploads.fail(found, f"its bytes on the device are damaged: {reason}")
        return unsynced

    def known_as(self, oid: int) -> int:
        """The inode number that the file is known by: that of its content at the origin."""
        names = self._store.names_of(oid) if self._origins else []
        origin = self._origins.of_inode(names[0][0]) if names and self._origins is not None else None
        remote = None if origin is None else origin.get(*names[0])
        return oid if remote is None else remote.ino
