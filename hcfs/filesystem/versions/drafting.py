"""How versions begin: an empty file, or a view of what a name leads to."""

from __future__ import annotations

import errno

from hcfs.filesystem.calls import CallError
from hcfs.filesystem.identity import CallerIdentity
from hcfs.filesystem.versions.policy import Policies
from hcfs.filesystem.versions.publisher import Publisher
from hcfs.filesystem.versions.version import Version, Versions
from hcfs.filesystem.versions.version_names import VersionNames
from hcfs.filesystem.volume import Volume
from hcfs.store import Kind, Staged


class Drafting:
    """Lock held; memory only."""

    def __init__(
        self, volume: Volume, versions: Versions, names: VersionNames, publisher: Publisher, policies: Policies
    ) -> None:
        self._volume = volume
        self._store = volume.store
        self._cache = volume.cache
        self._versions = versions
        self._names = names
        self._publisher = publisher
        self._policies = policies

    def begin_empty(self, who: CallerIdentity, parent: int, name: bytes, mode: int, uid: int, gid: int) -> Version:
        """The caller's new version of a name, without a byte. MetadataFull where no row is left for it."""
        self._store.staging.require_row()
        namespace = self._store.namespace_of(parent)
        staged = self._store.stage(None, namespace=namespace, mode=mode, uid=uid, gid=gid)
        return self._register(who, parent, name, staged)

    def begin_view(self, who: CallerIdentity, base: int, parent: int, name: bytes) -> Version:
        """The caller's new version of what a name leads to. parent 0: the name is bound later, by the lookup of one of
        the base's hard links."""
        staged = self._store.stage(base, namespace=self._store.namespace_of(base), mode=0, uid=0, gid=0)
        return self._register(who, parent, name, staged)

    def _register(self, who: CallerIdentity, parent: int, name: bytes, staged: Staged) -> Version:
        process = who.process
        if process is None:
            self._volume.pid_zero_seen = True
        staging = bool(parent) and self._names.is_staging_name(parent, name)
        version = Version(staged, process, parent, name, staging=staging, created_at=self._volume.clock())
        self._versions.add(version)
        if parent:
            self._named(version)
        return version

    def _named(self, version: Version) -> None:
        self.charge_to_name(version.staged, version.parent, version.name)
        policy = self._policies.of(version.staged.namespace)
        if policy is not None:
            policy.begun(version)

    def bind(self, oid: int, parent: int, name: bytes, who: CallerIdentity) -> Version | None:
        """The version that a write-open of an object with several names made, once it is known which name was meant;
        None when there is none."""
        staging = self._names.is_staging_name(parent, name)
        version = self._versions.bind(oid, who.process, parent, name, staging=staging)
        if version is not None:
            self.charge_to_name(version.staged, parent, name)
        return version

    def charge_to_name(self, staged: Staged, parent: int, name: bytes) -> None:
        """Let what is staged count for the quotas that a file of this name counts for. QuotaExceeded, with nothing
        changed, when it doesn't fit."""
        namespace = self._store.namespace_of(parent)
        self._store.assign(staged, self._cache.account(namespace, name))

    def of_object(self, ino: int, who: CallerIdentity) -> None:
        """Make the caller's version of a committed object, so that the lookup that the kernel repeats finds it. The
        caller answers ESTALE afterwards. Idempotent while that version isn't opened."""
        attributes = self._store.attributes(ino)
        names = self._store.names_of(ino)
        if attributes.kind is not Kind.FILE or not names:
            return
        if len(names) > 1:
            if self._versions.waits_for_name(ino, who.process) is None:
                self.begin_view(who, ino, 0, b"")
            return
        parent, name = names[0]
        if self.own_now(parent, name, who) is None:
            self.begin_view(who, ino, parent, name)

    def of_name(self, parent: int, name: bytes, who: CallerIdentity) -> None:
        """Make the caller's version of the file that a name leads to, unless it has one or there is none. The caller
        answers ESTALE afterwards."""
        oid = self._store.lookup(parent, name)
        if oid is None or self._store.attributes(oid).kind is not Kind.FILE:
            return
        if self.own_now(parent, name, who) is None:
            self.begin_view(who, oid, parent, name)

    def own_now(self, parent: int, name: bytes, who: CallerIdentity) -> Version | None:
        """The caller's own version of a name, for an open that begins. One that an earlier open was promised and that
        is a view of what the name doesn't mean any more is dropped: that open hasn't come."""
        version = self._names.own(parent, name, who)
        if version is None or version.opened or version.base in (None, self._store.lookup(parent, name)):
            return version
        self._publisher.drop_unmodified(version)
        return None

    def begin_anew(self, version: Version, who: CallerIdentity) -> None:
        """An empty version in place of one that is closed, for the caller. Raises ESTALE."""
        like = version.staged.attributes()
        parent, name = version.key
        if version.owner is not None and version.owner == who.process:
            self._publisher.unname(version)
        self._publisher.retire_leftovers(parent, name)
        self.begin_empty(who, parent, name, like.mode, like.uid, like.gid)
        raise CallError(errno.ESTALE)

    def take_over(self, version: Version, who: CallerIdentity, *, truncates: bool) -> None:
        """Another process's version, reached under a staging name. Appending goes on with it; a writer that truncates
        gets its own version, since the other may still rename its."""
        if not version.is_staged or not version.waiting:
            raise CallError(errno.ESTALE)
        if version.failed or truncates:
            if self._names.own(version.parent, version.name, who) is None:
                self.begin_anew(version, who)
            raise CallError(errno.ESTALE)
        version.owner = who.process
