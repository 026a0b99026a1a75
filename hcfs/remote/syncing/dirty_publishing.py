"""Publishing in a namespace whose files go to an origin: what is published is dirty, in the same transaction, unless
its origin has it already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hcfs.cache import DOUBT, ETAG, SYNC, SyncRecord
from hcfs.filesystem.lock_files import is_lock_name
from hcfs.filesystem.versions.policy import Closing
from hcfs.filesystem.versions.version import Version
from hcfs.filesystem.volume import Volume
from hcfs.origin import Listed
from hcfs.remote.namespace_origin import Origin
from hcfs.remote.origins import Origins
from hcfs.remote.remote_damage import RemoteDamage
from hcfs.remote.syncing.sync_names import SyncNames
from hcfs.remote.uploading.sync_marks import UNKNOWN, mark, unmark
from hcfs.remote.uploading.upload_source import key_of


class DirtyPublishing:
    """A VersionPolicy."""

    def __init__(
        self, volume: Volume, names: SyncNames, origins: Origins, closing: Closing, damage: RemoteDamage
    ) -> None:
        self._volume = volume
        self._store = volume.store
        self._names = names
        self._origins = origins
        self._damage = damage
        self.closing = closing

    def begun(self, version: Version) -> None:
        """Note the content at the origin that the version will replace: what its writer knew, not what is there when it
        is done."""
        parent, name = version.key
        origin = self._names.writable_origin(parent)
        if origin is None or is_lock_name(name):
            return
        base = UNKNOWN if version.staging else self._names.base_of_name(origin, parent, name)
        mark(version.staged, SyncRecord(base))

    def moved(self, version: Version) -> None:
        """What it will replace is known when it is published."""
        mark(version.staged, SyncRecord(UNKNOWN))

    @contextmanager
    def publishing(self, version: Version, parent: int, name: bytes) -> Iterator[None]:
        """It is dirty, or clean where the origin has this very content under this name. Local-only under a name that
        stays here."""
        origin = self._names.writable_origin(parent)
        if origin is None:
            yield
        elif not self._names.goes_out(parent, name):
            unmark(version.staged, SYNC, ETAG, DOUBT)  # of the staging name, or of a view's base
            yield
        elif version.is_uploaded_as(parent, name):
            with self._store.atomically():
                key = self._mark_clean(version, parent, name)
                yield
                self._published_clean(origin, version, parent, name, key)
        else:
            with self._store.atomically():
                record = self._mark_dirty(origin, version, parent, name)
                try:
                    yield
                except BaseException:
                    self._volume.cache.let_go(version.ino)
                    raise
                self._origins.uploads.add(version.ino, (parent, name), record)

    def _mark_dirty(self, origin: Origin, version: Version, parent: int, name: bytes) -> SyncRecord:
        key_of(self._store, parent, name)  # refused where the name can't be one
        record = SyncRecord(self._names.base_of(origin, version, parent, name))
        mark(version.staged, record)
        self._volume.cache.keep(version.ino)
        return record

    def _mark_clean(self, version: Version, parent: int, name: bytes) -> str:
        """The key."""
        key, staged = key_of(self._store, parent, name), version.staged
        assert version.uploaded is not None
        unmark(staged, SYNC, DOUBT)
        staged.set_xattr(ETAG, version.uploaded.etag.encode())
        if self._origins.uploads.is_doubted((parent, name)):
            staged.set_xattr(DOUBT, b"")
        return key

    def _published_clean(self, origin: Origin, version: Version, parent: int, name: bytes, key: str) -> None:
        assert version.uploaded is not None
        self._origins.uploads.forget((parent, name))
        attributes = self._store.attributes(version.ino)
        access = origin.uploaded_access(attributes)
        listed = Listed(key, attributes.size, attributes.mtime_ns, version.uploaded.etag, access)
        remote = self._origins.new_remote(origin, parent, name, listed, version.ino)
        self._origins.changed(origin, (parent, name), remote)

    def keeps_damaged(self, oid: int, generation: int, reason: str) -> bool:
        return self._damage.keeps(oid, generation, reason)

    def known_as(self, oid: int) -> int:
        return self._damage.known_as(oid)
