"""Write-through: a close or a rename returns when the origin has the file, or fails and publishes nothing."""

from __future__ import annotations

import errno
import logging

from hcfs.cache import ANYTHING
from hcfs.errors import HcfsError
from hcfs.mount.answers import Blocking, CallError, finish
from hcfs.mount.handles import VersionHandle
from hcfs.mount.namespace_origin import Origin
from hcfs.mount.outgoing import key_of, outgoing_version
from hcfs.mount.process import holds_open
from hcfs.mount.versions import Fate, Name, UploadedVersion, Version
from hcfs.mount.written_versions import WrittenVersions
from hcfs.origin import Listed, OriginError, OriginUploader, Outgoing, Patience, Uploaded
from hcfs.store.errors import DamagedGranule

log = logging.getLogger(__name__)

ATTEMPTS = 5
"""Failures in a row after which a close or rename fails: some 3 s of pauses, while somebody waits."""


class WriteThrough(WrittenVersions):
    """Uploads run in the threads that wait for origins, one at a time for each name."""

    def through(self, version: Version) -> Origin | None:
        """The origin that a version goes to before its close returns; None where it doesn't. Lock held."""
        if not version.parent or version.fate is not Fate.STAGED or version.staging:
            return None
        origin = self.writable_origin(version.parent)
        if origin is None or not origin.writes_through or not self.goes_out(*version.key):
            return None
        return origin

    def at_origin(self, version: Version, name: Name) -> bool:
        """Whether a version's present content was uploaded under this name. Lock held."""
        uploaded = version.uploaded
        return uploaded is not None and uploaded.name == name and uploaded.changes == version.changes

    def flush(self, number: int) -> Blocking[None] | None:
        """As Data.flush; the last descriptor's close uploads what was sealed. EIO when the origin doesn't take it: the
        version has failed then, and what its name led to stays."""
        answer = super().flush(number)
        handle = self.handles.get(number)
        if not isinstance(handle, VersionHandle) or not handle.writable:
            return answer
        version = handle.version
        with self.lock:
            if (
                self.through(version) is None
                or version.failed
                or not version.modified
                or self.at_origin(version, version.key)
            ):
                return answer
            if answer is None and not version.flushed:
                return None  # a write is under way
        return Blocking(lambda: self._flush_through(version, answer), origin=True)

    def _flush_through(self, version: Version, sealing: Blocking[None] | None) -> None:
        finish(sealing)
        # A shell's redirection closes one descriptor before the first byte is written through the other.
        if holds_open(version.ino, self.device):
            return
        try:
            self._send_closed(version)
        except BaseException as error:
            what = None if isinstance(error, HcfsError) else error
            log.warning("%s isn't uploaded, and its close fails: %s", self.shown(version), error, exc_info=what)
            with self.lock:
                self._fail(version, errno.EIO)
            raise CallError(errno.EIO) from None

    def _send_closed(self, version: Version) -> None:
        """Upload what was sealed, under its own name; nothing where it was written to since, or lost that. Blocks."""
        with self.lock:
            name = version.key
        with self.uploads.hold(name, halt=True):
            with self.lock:
                origin = self.through(version)
                if origin is None or version.key != name or not version.flushed:
                    return
            self.send(origin, version, *name)

    def send(self, origin: Origin, version: Version, parent: int, name: bytes) -> None:
        """Upload a sealed version under a name, which the caller holds. Blocks; no lock is held. HcfsError when it
        doesn't reach the origin."""
        assert self.origins is not None
        with self.lock:
            if origin.uploader is None or version.failed or not version.flushed or version.fate is not Fate.STAGED:
                raise CallError(errno.EIO)
            changes, base = version.changes, self.base_of(origin, version, parent, name)
            key = key_of(self.store, parent, name)
            outgoing = outgoing_version(
                origin.uploader,
                self.store,
                version.staged,
                changes,
                key,
                lambda _: self._require_unchanged(version),
                parent=parent,
            )
        with self.uploads.doubted((parent, name)):
            uploaded = self._put(origin, origin.uploader, outgoing, None if base == ANYTHING else base)
        with self.lock:
            origin.counts.uploads += 1
            origin.counts.uploaded_bytes += uploaded.size
            version.uploaded = UploadedVersion((parent, name), changes, uploaded.etag)
            self.uploads.settled((parent, name))
            older = self.uploads.at((parent, name)) is not None
            if older:
                # An older content, which mustn't follow this one to the origin.
                self.store.unlink(parent, name)
                self.uploads.forget((parent, name))
                self.kernel.forget_name(parent, name)
            attributes = version.staged.attributes()
            access = origin.uploaded_access(attributes)
            listed = Listed(key, uploaded.size, attributes.mtime_ns, uploaded.etag, access)
            self.origins.changed(origin, (parent, name), self.origins.new_remote(origin, parent, name, listed, None))
        if older:
            self.store.commit()  # nor after a crash

    def _put(self, origin: Origin, uploader: OriginUploader, outgoing: Outgoing, base: str | None) -> Uploaded:
        patience = Patience(self.uploads.stop, attempts=ATTEMPTS)
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
        if not version.flushed or version.fate is not Fate.STAGED:
            raise OriginError("it was written to, or removed, while it was uploaded")

    # --- the last writer's close -------------------------------------------------------------------------------------

    def _last_writer_closed(self, version: Version, *, used: bool) -> None:
        """As Publishing._last_writer_closed. What no FLUSH has uploaded is uploaded first, in the background; what was
        uploaded, and replaced or removed at the origin since, isn't published over that."""
        origin = self.through(version)
        if origin is None or version.failed or not version.modified or not used:
            super()._last_writer_closed(version, used=used)
            return
        if not self.at_origin(version, version.key):
            version.closed_at = self.clock()
            version.closing = True
            self.uploads.in_background(origin.namespace, lambda: self._finish_through(version))
            return
        known = origin.get(*version.key)
        assert version.uploaded is not None
        if known is None or known.listed.etag != version.uploaded.etag:
            self.versions.unname(version)
            version.fate = Fate.NAMELESS
            return
        super()._last_writer_closed(version, used=used)

    def _finish_through(self, version: Version) -> None:
        """Lock not held."""
        try:
            if not version.flushed:
                self.seal(version, as_flush=True)
            self._send_closed(version)
        except HcfsError as error:
            log.warning("%s is abandoned, since it isn't uploaded: %s", self.shown(version), error)
            with self.lock:
                if version.fate is Fate.STAGED:
                    self._abandon(version)
        with self.lock:
            version.closing = False
            if version.fate is Fate.STAGED and not version.writers and self.at_origin(version, version.key):
                self._publish_or_abandon(version)
