"""Write-through: a close or a rename returns when the origin has the file, or fails and publishes nothing."""

from __future__ import annotations

import errno
import logging

from hcfs.cache import ANYTHING
from hcfs.filesystem.calls import Blocking, CallError, finish
from hcfs.filesystem.paths import Paths
from hcfs.filesystem.versions.policy import Closing
from hcfs.filesystem.versions.publisher import Publisher, unexpected
from hcfs.filesystem.versions.version import Fate, UploadedVersion, Version, Versions
from hcfs.filesystem.volume import Volume
from hcfs.host.process import holds_open
from hcfs.origin import Listed, OriginError, OriginUploader, Outgoing, Patience, Uploaded
from hcfs.remote.namespace_origin import Origin
from hcfs.remote.origins import Origins
from hcfs.remote.syncing.sync_names import SyncNames
from hcfs.remote.uploading.upload_source import key_of, outgoing_version
from hcfs.store.errors import DamagedGranule

log = logging.getLogger(__name__)

ATTEMPTS = 5
"""Failures in a row after which a close or rename fails: some 3 s of pauses, while somebody waits."""


class WriteThrough:
    """A Closing for namespaces with a write policy; where that isn't write-through it is the local one.

    Uploads run in the threads that wait for origins, one at a time for each name."""

    def __init__(
        self,
        volume: Volume,
        versions: Versions,
        publisher: Publisher,
        paths: Paths,
        local: Closing,
        names: SyncNames,
        origins: Origins,
    ) -> None:
        self._volume = volume
        self._store = volume.store
        self._lock = volume.lock
        self._versions = versions
        self._publisher = publisher
        self._paths = paths
        self._local = local
        self._names = names
        self._origins = origins
        self._uploads = origins.uploads

    def _through(self, version: Version) -> Origin | None:
        """The origin that a version goes to before its close returns; None where it doesn't. Lock held."""
        if not version.parent or not version.is_staged or version.staging:
            return None
        origin = self._names.writable_origin(version.parent)
        if origin is None or not origin.writes_through or not self._names.goes_out(*version.key):
            return None
        return origin

    def flush(self, version: Version) -> Blocking[None] | None:
        """The last descriptor's close uploads what was sealed. EIO when the origin doesn't take it: the version has
        failed then, and what its name led to stays."""
        sealing = self._local.flush(version)
        with self._lock:
            if self._through(version) is None or version.failed or not version.modified:
                return sealing
            if version.is_uploaded_as(*version.key):
                return sealing
            if sealing is None and not version.flushed:
                return None  # a write is under way
        return Blocking(lambda: self._flush_through(version, sealing), origin=True)

    def _flush_through(self, version: Version, sealing: Blocking[None] | None) -> None:
        finish(sealing)
        # A shell's redirection closes one descriptor before the first byte is written through the other.
        if holds_open(version.ino, self._volume.device):
            return
        try:
            self._send_closed(version)
        except BaseException as error:
            what, where = unexpected(error), self._paths.shown(version)
            log.warning("%s isn't uploaded, and its close fails: %s", where, error, exc_info=what)
            with self._lock:
                self._publisher.fail(version, errno.EIO)
            raise CallError(errno.EIO) from None

    def _send_closed(self, version: Version) -> None:
        """Upload what was sealed, under its own name; nothing where it was written to since, or lost that. Blocks."""
        with self._lock:
            name = version.key
        with self._uploads.hold(name, halt=True):
            with self._lock:
                origin = self._through(version)
                if origin is None or version.key != name or not version.flushed:
                    return
            self.send(origin, version, *name)

    def send(self, origin: Origin, version: Version, parent: int, name: bytes) -> None:
        """Upload a sealed version under a name, which the caller holds. Blocks; no lock is held. HcfsError when it
        doesn't reach the origin."""
        store, uploads, origins = self._store, self._uploads, self._origins
        with self._lock:
            if origin.uploader is None or version.failed or not version.flushed or not version.is_staged:
                raise CallError(errno.EIO)
            changes, base = version.changes, self._names.base_of(origin, version, parent, name)
            key = key_of(store, parent, name)
            outgoing = outgoing_version(
                origin.uploader,
                store,
                version.staged,
                changes,
                key,
                lambda _: self._require_unchanged(version),
                parent=parent,
            )
        with uploads.doubted((parent, name)):
            uploaded = self._put(origin, origin.uploader, outgoing, None if base == ANYTHING else base)
        with self._lock:
            origin.counts.uploads += 1
            origin.counts.uploaded_bytes += uploaded.size
            version.uploaded = UploadedVersion((parent, name), changes, uploaded.etag)
            uploads.settled((parent, name))
            older = uploads.at((parent, name)) is not None
            if older:
                # An older content, which mustn't follow this one to the origin.
                store.unlink(parent, name)
                uploads.forget((parent, name))
                self._volume.kernel.forget_name(parent, name)
            attributes = version.staged.attributes()
            access = origin.uploaded_access(attributes)
            listed = Listed(key, uploaded.size, attributes.mtime_ns, uploaded.etag, access)
            origins.changed(origin, (parent, name), origins.new_remote(origin, parent, name, listed, None))
        if older:
            store.commit()  # nor after a crash

    def _put(self, origin: Origin, uploader: OriginUploader, outgoing: Outgoing, base: str | None) -> Uploaded:
        patience = Patience(self._uploads.stop, attempts=ATTEMPTS)
        try:
            return patience.insist(lambda: uploader.put(outgoing, base))
        except DamagedGranule as error:
            origin.counts.upload_failures += 1
            raise CallError(errno.EIO, f"its bytes on the device are damaged: {error}") from None
        except OriginError as error:
            origin.counts.upload_failures += 1
            origin.counts.note_error(error)
            raise

    def _require_unchanged(self, version: Version) -> None:
        if not version.flushed or not version.is_staged:
            raise OriginError("it was written to, or removed, while it was uploaded")

    # --- the last writer's close -------------------------------------------------------------------------------------

    def last_writer_closed(self, version: Version, *, used: bool) -> None:
        """What no FLUSH has uploaded is uploaded first, in the background; what was uploaded, and replaced or removed
        at the origin since, isn't published over that."""
        origin = self._through(version)
        if origin is None or version.failed or not version.modified or not used:
            self._local.last_writer_closed(version, used=used)
            return
        if not version.is_uploaded_as(*version.key):
            version.closed_at = self._volume.clock()
            version.closing = True
            self._uploads.in_background(origin.namespace, lambda: self._finish(version))
            return
        known = origin.get(*version.key)
        assert version.uploaded is not None
        if known is None or known.listed.etag != version.uploaded.etag:
            self._versions.unname(version)
            version.fate = Fate.NAMELESS
            return
        self._local.last_writer_closed(version, used=used)

    def _finish(self, version: Version) -> None:
        """Lock not held."""
        publisher = self._publisher
        try:
            if not version.flushed:
                publisher.seal(version, as_flush=True)
            self._send_closed(version)
        except BaseException as error:
            what, where = unexpected(error), self._paths.shown(version)
            log.warning("%s is abandoned, since it isn't uploaded: %s", where, error, exc_info=what)
            with self._lock:
                if version.is_staged:
                    publisher.abandon(version)
        with self._lock:
            version.closing = False
            if version.is_staged and not version.writers and version.is_uploaded_as(*version.key):
                publisher.publish_or_abandon(version)
