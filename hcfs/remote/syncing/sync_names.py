"""Which names go to an origin, and what they replace there."""

from __future__ import annotations

from hcfs.cache import ABSENT, ANYTHING, ETAG
from hcfs.filesystem.lock_files import is_lock_name
from hcfs.filesystem.versions.version import Version
from hcfs.filesystem.versions.version_names import VersionNames
from hcfs.filesystem.volume import Volume
from hcfs.remote.namespace_origin import Origin
from hcfs.remote.origins import Origins
from hcfs.remote.uploading.sync_marks import UNKNOWN, base_marked


class SyncNames:
    """Names that aren't staging names and don't end in .lock go to the origin; those stay here. Memory only."""

    def __init__(self, volume: Volume, names: VersionNames, origins: Origins) -> None:
        self._store = volume.store
        self._names = names
        self._origins = origins

    def writable_origin(self, ino: int) -> Origin | None:
        """The origin of a namespace whose write policy lets files go there; None for any other."""
        origin = self._origins.of_inode(ino)
        return None if origin is None or origin.uploader is None else origin

    def goes_out(self, parent: int, name: bytes) -> bool:
        """Whether a file of this name goes to the origin of its namespace, which has a write policy that says so."""
        return not is_lock_name(name) and not self._names.is_staging_name(parent, name)

    def base_of_name(self, origin: Origin, parent: int, name: bytes) -> str:
        """What the origin has under a name, as far as this device knows. Lock held."""
        uploads = self._origins.uploads
        with self._store.atomically():
            oid = self._store.lookup(parent, name)
            if oid is not None:
                unsynced = uploads.get(oid)
                etag = self._store.get_xattr(oid, ETAG)
                if unsynced is not None:
                    return unsynced.record.base
                if etag is not None:
                    return etag.decode() or ANYTHING
        remote = origin.get(parent, name)
        return ABSENT if remote is None else remote.listed.etag or ANYTHING

    def base_of(self, origin: Origin, version: Version, parent: int, name: bytes) -> str:
        """What of the origin's a version replaces when it is published under a name. Lock held."""
        base = base_marked(version.staged)
        if base == UNKNOWN or version.key != (parent, name):
            return self.base_of_name(origin, parent, name)
        return base
