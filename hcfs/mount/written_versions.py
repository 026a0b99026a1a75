"""Publishing in a namespace whose files go to an origin: what is published is dirty, in the same transaction, unless
its origin has it already."""

from __future__ import annotations

from hcfs.cache import ABSENT, ANYTHING, DOUBT, ETAG, SYNC, SyncRecord
from hcfs.errors import HcfsError
from hcfs.mount.core import Identity
from hcfs.mount.lockfiles import is_lock_name
from hcfs.mount.namespace_origin import Origin
from hcfs.mount.outgoing import key_of
from hcfs.mount.remote_files import RemoteFiles
from hcfs.mount.sync_marks import UNKNOWN, base_marked, mark, unmark
from hcfs.mount.uploads import Uploads
from hcfs.mount.versions import Version
from hcfs.origin import Listed
from hcfs.store import Attributes, Kind, Staged


class WrittenVersions(RemoteFiles):
    """Names that aren't staging names and don't end in .lock go to the origin; those stay here."""

    @property
    def uploads(self) -> Uploads:
        """Of the mount's origins; asked for only where there is one."""
        assert self.origins is not None
        return self.origins.uploads

    def writable_origin(self, ino: int) -> Origin | None:
        """The origin of a namespace whose write policy lets files go there; None for any other."""
        origin = self.origin_of(ino)
        return None if origin is None or origin.uploader is None else origin

    def goes_out(self, parent: int, name: bytes) -> bool:
        """Whether a file of this name goes to the origin of its namespace, which has a write policy that says so."""
        return not is_lock_name(name) and not self.is_staging_name(parent, name)

    def is_here(self, oid: int) -> bool:
        """Whether a committed object of a namespace with an origin is a file that the origin doesn't have: dirty, or
        never to go there."""
        try:
            with self.store.lock:
                return self.store.attributes(oid).kind is Kind.FILE and self.store.get_xattr(oid, ETAG) is None
        except HcfsError:
            return False

    # --- versions ----------------------------------------------------------------------------------------------------

    def _make_version(self, who: Identity, parent: int, name: bytes, staged: Staged) -> Version:
        """As Publishing._make_version, with a note of the content at the origin that the version will replace: what
        its writer knew, not what is there when it is done."""
        version = super()._make_version(who, parent, name, staged)
        origin = self.writable_origin(parent) if parent and not is_lock_name(name) else None
        if origin is not None:
            base = UNKNOWN if version.staging else self._base_of_name(origin, parent, name)
            mark(version.staged, SyncRecord(base))
        return version

    def _base_of_name(self, origin: Origin, parent: int, name: bytes) -> str:
        """What the origin has under a name, as far as this device knows. Lock held."""
        with self.store.lock:
            oid = self.store.lookup(parent, name)
            if oid is not None:
                unsynced = self.uploads.get(oid)
                etag = self.store.get_xattr(oid, ETAG)
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
            return self._base_of_name(origin, parent, name)
        return base

    def _publish(self, version: Version, parent: int, name: bytes, *, replace: bool = True) -> None:
        """As Publishing._publish; dirty, or clean where the origin has this very content under this name. Local-only
        under a name that stays here."""
        origin = self.writable_origin(parent)
        if origin is None or not self.goes_out(parent, name):
            if origin is not None:
                unmark(version.staged, SYNC, ETAG, DOUBT)  # of the staging name, or of a view's base
            super()._publish(version, parent, name, replace=replace)
            return
        assert self.origins is not None
        key = key_of(self.store, parent, name)
        uploaded, staged = version.uploaded, version.staged
        with self.store.lock:
            record = None
            if uploaded is not None and uploaded[:2] == ((parent, name), version.changes):
                unmark(staged, SYNC, DOUBT)
                staged.set_xattr(ETAG, uploaded.etag.encode())
                if self.uploads.is_doubted((parent, name)):
                    staged.set_xattr(DOUBT, b"")
            else:
                record = SyncRecord(self.base_of(origin, version, parent, name))
                mark(version.staged, record)
                self.cache.keep(version.ino)
            try:
                super()._publish(version, parent, name, replace=replace)
            except BaseException:
                self.cache.let_go(version.ino)
                raise
            if record is not None:
                self.uploads.add(version.ino, (parent, name), record)
                return
            assert uploaded is not None
            self.uploads.forget((parent, name))
            attributes = self.store.attributes(version.ino)
            access = origin.uploaded_access(attributes)
            listed = Listed(key, attributes.size, attributes.mtime_ns, uploaded.etag, access)
            remote = self.origins.new_remote(origin, parent, name, listed, version.ino)
            self.origins.changed(origin, (parent, name), remote)

    # --- damage, and what is said of a file --------------------------------------------------------------------------

    def quarantine(self, oid: int, generation: int, reason: str) -> None:
        """As Damage.quarantine; but a file that its origin doesn't have keeps its name, and what of it verifies can be
        read: nobody else has it. Its upload is given up."""
        with self.lock, self.store.lock:
            try:
                unsynced = self.store.get_xattr(oid, SYNC) is not None and not self.store.is_quarantined(oid)
                current = unsynced and self.store.attributes(oid).generation == generation
            except HcfsError:
                unsynced = current = False
            found = self.uploads.get(oid) if current and self.origins is not None else None
            if found is not None:
                self.uploads.fail(found, f"its bytes on the device are damaged: {reason}")
        if unsynced:
            self.kernel.forget_pages(oid)
            return
        super().quarantine(oid, generation, reason)

    def _state(self, attributes: Attributes) -> bytes:
        if attributes.state == "committed" and attributes.kind is Kind.FILE:
            value = self.store.get_xattr(attributes.id, SYNC)
            if value is not None:
                found = self.uploads.get(attributes.id) if self.origins is not None else None
                state = "dirty" if SyncRecord.decode(value).reason is None else "sync-failed"
                return (state if found is None else found.state).encode()
            if self.store.get_xattr(attributes.id, ETAG) is None:
                return b"local-only"
        return super()._state(attributes)

    def _origin(self, attributes: Attributes) -> bytes:
        if self.store.get_xattr(attributes.id, SYNC) is None:
            return super()._origin(attributes)
        namespace = self.store.namespace_of(attributes.id)
        return self._origin_url(namespace, self.store.path_of(attributes.id).partition(b"/")[2])
