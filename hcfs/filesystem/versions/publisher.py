"""How versions end: published, dropped, given up; and what must be safe before."""

from __future__ import annotations

import errno
import logging
from types import TracebackType

from hcfs.errors import HcfsError
from hcfs.filesystem.calls import CallError
from hcfs.filesystem.paths import Paths
from hcfs.filesystem.versions.policy import Policies
from hcfs.filesystem.versions.replaced_names import ReplacedNames
from hcfs.filesystem.versions.version import Fate, Version, Versions
from hcfs.filesystem.volume import Volume
from hcfs.host.process import is_alive, was_killed

log = logging.getLogger(__name__)


class Publisher:
    """Each method is called with the lock held, or says otherwise. None knows who calls it, or why."""

    def __init__(
        self, volume: Volume, versions: Versions, replaced: ReplacedNames, paths: Paths, policies: Policies
    ) -> None:
        self._volume = volume
        self._store = volume.store
        self._lock = volume.lock
        self._kernel = volume.kernel
        self._counts = volume.counts
        self._versions = versions
        self._replaced = replaced
        self._paths = paths
        self._policies = policies

    # --- before it ends ----------------------------------------------------------------------------------------------

    def require_possible(self, version: Version, size: int) -> None:
        """EFBIG for more bytes than a file of this store can have; the version stays as it is, as on other
        filesystems. Lock not held."""
        if not version.failed:
            self._store.require_possible_size(size)

    def change(self, version: Version) -> Change:
        """A change of a version's bytes, as a context: EIO on one that is published or abandoned, the errno of one that
        has failed. The version has failed when the store refuses the change. Lock not held."""
        return Change(self, version)

    def begin_change(self, version: Version) -> None:
        """Half of `change`. Lock not held."""
        with self._lock:
            if version.failed:
                raise CallError(version.failed)
            if version.fate in (Fate.PUBLISHED, Fate.ABANDONED):
                raise CallError(errno.EIO)
            version.changes += 1
            version.writing += 1

    def end_change(self, version: Version, error: BaseException | None) -> None:
        """The other half. Lock not held."""
        with self._lock:
            version.writing -= 1
            if error is not None:
                self.fail(version, _errno_of(error))

    def seal(self, version: Version, *, as_flush: bool) -> None:
        """Write out the tail and reserve what publishing needs. Blocks; no lock held. Raises what the store raises, and
        the version then has failed. as_flush: a rename may publish it from now on, if nothing is written after."""
        with self._lock:
            changes = version.changes
        try:
            version.staged.seal()
        except BaseException as error:
            with self._lock:
                if version.fate is Fate.PUBLISHED:
                    return  # by a rename meanwhile, or a link: then it was sealed, and nothing was written since
                self.fail(version, _errno_of(error))
            raise
        with self._lock:
            if as_flush and version.changes == changes and not version.writing:
                version.flushed_changes = changes

    def settle(self, version: Version) -> None:
        """Seal a closed version whose last writes came after its last FLUSH. Blocks; no lock held."""
        try:
            self.seal(version, as_flush=True)
        except HcfsError as error:
            raise CallError(error.errno) from error

    def abandon_if_killed(self, version: Version) -> None:
        """Abandon the version when the process that made it was killed; EIO then, for whoever inherited the handle."""
        if version.fate is Fate.STAGED and version.owner is not None and was_killed(version.owner):
            where = self._paths.shown(version)
            log.info("process %d was killed while it wrote %s: abandoned", version.owner.tgid, where)
            self.abandon(version)
            raise CallError(errno.EIO)

    # --- the ends ----------------------------------------------------------------------------------------------------

    def publish(self, version: Version, parent: int, name: bytes, *, replace: bool = True) -> None:
        """Make a sealed version the committed object of a name. The store's errors leave it as it was."""
        policy = self._policies.of(version.staged.namespace)
        if policy is None:
            self._publish(version, parent, name, replace=replace)
            return
        with policy.publishing(version, parent, name):
            self._publish(version, parent, name, replace=replace)

    def _publish(self, version: Version, parent: int, name: bytes, *, replace: bool) -> None:
        store = self._store
        former = self._volume.attributes_at(parent, name)
        replaced = None if former is None else former.id
        links = () if replaced is None else store.names_of(replaced)
        store.publish(version.staged, parent, name, replace=replace)
        self._replaced.note(former, parent, name)
        self._versions.unname(version)
        version.fate = Fate.PUBLISHED
        version.closing = False
        if version.handles:
            version.pin = store.pin(version.ino)
        else:
            self._versions.forget(version)
        # The kernel keeps nothing about a name that has versions, so there is no name to tell it of: only the count of
        # links of what was replaced, for its other names and for who has it open.
        if replaced is not None and (len(links) > 1 or store.retention.pinned(replaced)):
            self._kernel.forget_attributes(replaced)

    def publish_or_abandon(self, version: Version) -> None:
        """Publish it under its own name. Nobody waits for an answer, so an error is logged."""
        try:
            self.publish(version, version.parent, version.name)
        except BaseException as error:
            what, where = unexpected(error), self._paths.shown(version)
            log.warning("%s can't be published and is abandoned: %s", where, error, exc_info=what)
            if version.is_staged:
                self.abandon(version)

    def unname(self, version: Version) -> None:
        """Its name is removed or replaced: open handles go on, nothing will be published."""
        if version.modified and not version.failed and version.fate is Fate.STAGED:
            self._counts.abandoned += 1
        self._versions.unname(version)
        version.fate = Fate.NAMELESS
        if not version.handles:
            self.discard(version)

    def abandon(self, version: Version) -> None:
        """Its writer was killed or failed: gone at once, space and all; open handles fail from now on."""
        if not version.failed:
            self._counts.abandoned += 1
        self._versions.unname(version)
        version.fate = Fate.ABANDONED
        version.staged.abandon()
        if not version.handles:
            self._versions.forget(version)

    def discard(self, version: Version) -> None:
        """Nothing leads to it any more."""
        version.staged.abandon()
        self._versions.forget(version)

    def fail(self, version: Version, code: int) -> None:
        """A write or seal failed: never published; its space is free at once, its name answers the errno."""
        if not version.failed:
            self._counts.abandoned += 1
            version.failed = code
            version.staged.abandon()

    def drop_unmodified(self, version: Version) -> None:
        """Closed as it was opened: the committed object stays, with the attributes that were set meanwhile."""
        base, store = version.base, self._store
        assert base is not None
        self.unname(version)
        try:
            if version.staged.attributes_changed:
                store.set_attributes(base, **version.staged.changed_attributes)
            for name, value in version.xattr_changes.items():
                if value is not None:
                    store.set_xattr(base, name, value)
                elif store.get_xattr(base, name) is not None:
                    store.remove_xattr(base, name)
        except HcfsError as error:
            # Removed or replaced meanwhile: then nobody can see them any more.
            log.info("attributes set on an unmodified version of object %d are lost: %s", base, error)
        if version.staged.attributes_changed or version.xattr_changes:
            self._kernel.forget_attributes(base)

    def retire_leftovers(self, parent: int, name: bytes, keep: Version | None = None) -> None:
        """A staging name was taken over, or away: what processes that have ended left closed under it goes with it.
        keep: the version that takes it over; its own process may have ended as well."""
        for version in list(self._versions.of_name(parent, name)):
            if version is not keep and version.waiting and version.owner is not None and not is_alive(version.owner):
                self.unname(version)


def _errno_of(error: BaseException) -> int:
    return error.errno if isinstance(error, HcfsError) else errno.EIO


def unexpected(error: BaseException) -> BaseException | None:
    """For a line of the log: the exception whose traceback it is to have, which is none of those that users and media
    cause."""
    return None if isinstance(error, HcfsError) else error


class Change:
    """Publisher.change. A class of its own: every WRITE enters one, and a generator's frames cost it a microsecond."""

    __slots__ = ("_publisher", "_version")

    def __init__(self, publisher: Publisher, version: Version) -> None:
        self._publisher = publisher
        self._version = version

    def __enter__(self) -> None:
        self._publisher.begin_change(self._version)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._publisher.end_change(self._version, error)
