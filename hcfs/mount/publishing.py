"""What becomes of versions: made, sealed, published, dropped, abandoned, reclaimed."""

from __future__ import annotations

import errno
import logging

from hcfs.errors import HcfsError
from hcfs.mount.answers import CallError
from hcfs.mount.core import Identity
from hcfs.mount.lookup import Lookup
from hcfs.mount.process import holds_open, is_alive, was_killed
from hcfs.mount.versions import Fate, Version
from hcfs.printable import printable
from hcfs.store import Kind, Staged

log = logging.getLogger(__name__)

UNOPENED_LIFE = 5.0
"""Seconds: the kernel repeats an open that was answered with ESTALE at once, or its process has died meanwhile."""


class Publishing(Lookup):
    """The life of a version. Methods with a leading underscore are called with the lock held, or say otherwise."""

    def _make_version(self, who: Identity, parent: int, name: bytes, staged: Staged) -> Version:
        """Register a new version for the caller. parent 0: the name is bound later, by the lookup of one of its base's
        hard links."""
        process = who.process
        if process is None:
            self.pid_zero_seen = True
        staging = bool(parent) and self.is_staging_name(parent, name)
        version = Version(staged, process, parent, name, staging=staging, created_at=self.clock())
        self.versions.add(version)
        if parent:
            self.charge_to_name(staged, parent, name)
        return version

    def charge_to_name(self, staged: Staged, parent: int, name: bytes) -> None:
        """Let what is staged count for the quotas that a file of this name counts for. QuotaExceeded, with nothing
        changed, when it doesn't fit."""
        namespace = self.store.namespace_of(parent)
        self.store.assign(staged, self.cache.account(namespace, name))

    def refuse_other_salt(self, parent: int, name: bytes, other: bytes) -> None:
        """EXDEV for a name of a published file beside one of another salt that has a quota of its own: as between
        projects of other filesystems' quotas, and mv then copies."""
        if self.cache.quotas.differ(self.store.namespace_of(parent), name, other):
            raise CallError(errno.EXDEV)

    def _stage_empty(self, parent: int, mode: int, uid: int, gid: int) -> Staged:
        self.store.require_row()
        return self.store.stage(None, namespace=self.store.namespace_of(parent), mode=mode, uid=uid, gid=gid)

    def _stage_view(self, base: int) -> Staged:
        return self.store.stage(base, namespace=self.store.namespace_of(base), mode=0, uid=0, gid=0)

    def version_for_writing(self, ino: int, who: Identity) -> None:
        """Make the caller's version of a committed object, so that the lookup that the kernel repeats finds it.

        Lock held. The caller answers ESTALE afterwards. Idempotent while that version isn't opened.
        """
        attributes = self.store.attributes(ino)
        names = self.store.names_of(ino)
        if attributes.kind is not Kind.FILE or not names:
            return
        if len(names) > 1:
            if self.versions.waits_for_name(ino, who.process) is None:
                self._make_version(who, 0, b"", self._stage_view(ino))
            return
        parent, name = names[0]
        if self.own_version_now(parent, name, who) is None:
            self._make_version(who, parent, name, self._stage_view(ino))

    def version_of_name(self, parent: int, name: bytes, who: Identity) -> None:
        """Make the caller's version of the file that a name leads to, unless it has one or there is none. Lock held.
        The caller answers ESTALE afterwards."""
        oid = self.store.lookup(parent, name)
        if oid is None or self.store.attributes(oid).kind is not Kind.FILE:
            return
        if self.own_version_now(parent, name, who) is None:
            self._make_version(who, parent, name, self._stage_view(oid))

    def own_version_now(self, parent: int, name: bytes, who: Identity) -> Version | None:
        """The caller's own version of a name, for an open that begins. One that an earlier open was promised and that
        is a view of what the name doesn't mean any more is dropped: that open hasn't come. Lock held."""
        version = self.own_version(parent, name, who)
        if version is None or version.opened or version.base in (None, self.store.lookup(parent, name)):
            return version
        self._drop_unmodified(version)
        return None

    # --- the ends of a version ---------------------------------------------------------------------------------------

    def _unname(self, version: Version) -> None:
        """Its name is removed or replaced: open handles go on, nothing will be published."""
        if version.modified and not version.failed and version.fate is Fate.STAGED:
            self.calls.abandoned += 1
        self.versions.unname(version)
        version.fate = Fate.NAMELESS
        if not version.handles:
            self._discard(version)

    def _abandon(self, version: Version) -> None:
        """Its writer was killed or failed: gone at once, space and all; open handles fail from now on."""
        if not version.failed:
            self.calls.abandoned += 1
        self.versions.unname(version)
        version.fate = Fate.ABANDONED
        version.staged.abandon()
        if not version.handles:
            self.versions.forget(version)

    def _discard(self, version: Version) -> None:
        version.staged.abandon()
        self.versions.forget(version)

    def _fail(self, version: Version, code: int) -> None:
        """A write or seal failed: never published; its space is free at once, its name answers the errno."""
        if not version.failed:
            self.calls.abandoned += 1
            version.failed = code
            version.staged.abandon()

    def _drop_unmodified(self, version: Version) -> None:
        """Closed as it was opened: the committed object stays, with the attributes that were set meanwhile."""
        base = version.base
        assert base is not None
        self._unname(version)
        try:
            if version.staged.attributes_changed:
                self.store.set_attributes(base, **version.staged.changed_attributes)
            for name, value in version.xattr_changes.items():
                if value is not None:
                    self.store.set_xattr(base, name, value)
                elif self.store.get_xattr(base, name) is not None:
                    self.store.remove_xattr(base, name)
        except HcfsError as error:
            # Removed or replaced meanwhile: then nobody can see them any more.
            log.info("attributes set on an unmodified version of object %d are lost: %s", base, error)
        if version.staged.attributes_changed or version.xattr_changes:
            self.kernel.forget_attributes(base)

    def _publish(self, version: Version, parent: int, name: bytes, *, replace: bool = True) -> None:
        """Make a sealed version the committed object of a name. The store's errors leave it as it was."""
        former = self.attributes_at(parent, name)
        replaced = None if former is None else former.id
        links = () if replaced is None else self.store.names_of(replaced)
        self.store.publish(version.staged, parent, name, replace=replace)
        self.note_replaced(former, parent, name)
        self.versions.unname(version)
        version.fate = Fate.PUBLISHED
        version.closing = False
        if version.handles:
            version.pin = self.store.pin(version.ino)
        else:
            self.versions.forget(version)
        # The kernel keeps nothing about a name that has versions, so there is no name to tell it of: only the count of
        # links of what was replaced, for its other names and for who has it open.
        if replaced is not None and (len(links) > 1 or self.store.pinned(replaced)):
            self.kernel.forget_attributes(replaced)

    def _retire_leftovers(self, parent: int, name: bytes, keep: Version | None = None) -> None:
        """A staging name was taken over, or away: what processes that have ended left closed under it goes with it.
        keep: the version that takes it over; its own process may have ended as well."""
        for version in list(self.versions.of_name(parent, name)):
            if version is keep:
                continue
            if version.waiting and version.owner is not None and not is_alive(version.owner):
                self._unname(version)

    # --- sealing -----------------------------------------------------------------------------------------------------

    def seal(self, version: Version, *, as_flush: bool) -> None:
        """Write out the tail and reserve what publishing needs. Blocks; no lock held. Raises what the store raises, and
        the version then has failed. as_flush: a rename may publish it from now on, if nothing is written after."""
        with self.lock:
            changes = version.changes
        try:
            version.staged.seal()
        except BaseException as error:
            with self.lock:
                if version.fate is Fate.PUBLISHED:
                    return  # by a rename meanwhile, or a link: then it was sealed, and nothing was written since
                self._fail(version, error.errno if isinstance(error, HcfsError) else errno.EIO)
            raise
        with self.lock:
            if as_flush and version.changes == changes and not version.writing:
                version.flushed_changes = changes

    def _check_killed(self, version: Version) -> None:
        """Abandon the version when the process that made it was killed; EIO then, for whoever inherited the handle."""
        if version.fate is Fate.STAGED and version.owner is not None and was_killed(version.owner):
            log.info("process %d was killed while it wrote %s: abandoned", version.owner.tgid, self.shown(version))
            self._abandon(version)
            raise CallError(errno.EIO)

    # --- the last writer's close -------------------------------------------------------------------------------------

    def _last_writer_closed(self, version: Version, *, used: bool) -> None:
        """used: its last handle was written through or closed, so the open that made it had come back."""
        version.closed_at = self.clock()
        if version.failed:
            if not version.staging:
                self._abandon(version)
        elif not version.modified:
            self._drop_unmodified(version)
        elif version.staging and version.flushed:
            self._retire_leftovers(version.parent, version.name, keep=version)
        elif version.flushed:
            self._publish_or_abandon(version)
        elif not used:
            log.info("the process that opened %s was killed within the call: abandoned", self.shown(version))
            self._abandon(version)
        else:
            # Written through a mapping after the last FLUSH: sealing waits for the device, and RELEASE may not.
            version.closing = True
            self.in_background(lambda: self._finish_close(version))

    def _finish_close(self, version: Version) -> None:
        """Lock not held."""
        try:
            self.seal(version, as_flush=True)
        except BaseException as error:
            what = None if isinstance(error, HcfsError) else error
            log.warning("%s is abandoned: its last writes can't be kept: %s", self.shown(version), error, exc_info=what)
        with self.lock:
            version.closing = False
            if version.fate is Fate.STAGED and not version.writers:
                if version.failed:
                    self._abandon(version)
                elif not version.staging:
                    self._publish_or_abandon(version)

    def _publish_or_abandon(self, version: Version) -> None:
        """Nobody waits for the answer of RELEASE, so an error is logged."""
        try:
            self._publish(version, version.parent, version.name)
        except BaseException as error:
            what = None if isinstance(error, HcfsError) else error
            log.warning("%s can't be published and is abandoned: %s", self.shown(version), error, exc_info=what)
            if version.fate is Fate.STAGED:
                self._abandon(version)

    # --- in the background -------------------------------------------------------------------------------------------

    def reap(self) -> int:
        """Reclaim versions that nobody will come back for; how many. An open write handle keeps any, however old."""
        now = self.clock()
        with self.lock:
            self.repeats.expire(now)
            expired = [version for version in self.versions if self._expired(version, now)]
            for version in expired:
                if not version.modified:
                    self._drop_unmodified(version)
                    continue
                log.info("%s waited %g s for its rename: reclaimed", self.shown(version), self.staging_ttl)
                self._unname(version)
        return len(expired)

    def _expired(self, version: Version, now: float) -> bool:
        if version.fate is not Fate.STAGED or version.writers or version.closing:
            return False
        if not version.opened:
            return now - version.created_at > UNOPENED_LIFE
        return version.closed_at is not None and now - version.closed_at > self.staging_ttl

    def publish_closed(self) -> None:
        """The connection to the kernel has ended, and with it the notices (RELEASE) of closes that have returned
        already: publish what was sealed by its last close and isn't open any more."""
        with self.lock:
            for version in self.versions:
                closed = version.fate is Fate.STAGED and version.writers and version.flushed
                if closed and not holds_open(version.ino, self.device):
                    self._last_writer_closed(version, used=True)

    def abandon_all(self) -> None:
        """The mount ends: what isn't published never will be."""
        with self.lock:
            for version in self.versions:
                if version.fate is Fate.STAGED:
                    self._abandon(version)
                elif version.fate is Fate.NAMELESS:
                    version.staged.abandon()

    def shown(self, version: Version) -> str:
        """A version's path, for the log."""
        if not version.parent:
            return f"object {version.base}"
        try:
            directory = self.store.path_of(version.parent).rstrip(b"/")
        except HcfsError:
            directory = b"?"
        return "'" + printable((directory + b"/" + version.name).decode(errors="backslashreplace")) + "'"
