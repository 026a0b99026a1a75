"""RENAME: the step that publishes what waits under a staging name."""

from __future__ import annotations

import errno
from collections.abc import Callable

from hcfs.filesystem.calls import Blocking, Caller, CallError
from hcfs.filesystem.identity import CallerIdentity
from hcfs.filesystem.operations.lookup import check_name
from hcfs.filesystem.operations.naming import Naming
from hcfs.filesystem.versions.drafting import Drafting
from hcfs.filesystem.versions.policy import Policies
from hcfs.filesystem.versions.publisher import Publisher
from hcfs.filesystem.versions.replaced_names import ReplacedNames
from hcfs.filesystem.versions.version import Fate, Name, Version, Versions
from hcfs.filesystem.versions.version_names import VersionNames
from hcfs.filesystem.volume import Volume
from hcfs.store import ROOT_ID, Kind
from hcfs.store.errors import QuotaExceeded

NOREPLACE = 1
"""RENAME_NOREPLACE of renameat2(2); the other flags are refused."""


class Renaming:
    """Atomic, and from memory, but for a version that was written through a mapping after its last close."""

    def __init__(
        self,
        volume: Volume,
        versions: Versions,
        names: VersionNames,
        replaced: ReplacedNames,
        drafting: Drafting,
        publisher: Publisher,
        policies: Policies,
        naming: Naming,
    ) -> None:
        self._volume = volume
        self._store = volume.store
        self._lock = volume.lock
        self._kernel = volume.kernel
        self._versions = versions
        self._names = names
        self._replaced = replaced
        self._drafting = drafting
        self._publisher = publisher
        self._policies = policies
        self._naming = naming

    def rename(
        self, old_parent: int, old_name: bytes, parent: int, name: bytes, flags: int, caller: Caller
    ) -> Blocking[None] | None:
        """Rename what the old name means to the caller.

        A version that no write has touched since its last FLUSH is published under a new name that isn't a staging
        name; one that is still being written gets its new name and nothing else. A version that failed answers its
        errno. EXDEV across namespaces, EEXIST with RENAME_NOREPLACE, EINVAL with RENAME_EXCHANGE.
        """
        check_name(old_name)
        check_name(name)
        if flags & ~NOREPLACE:
            raise CallError(errno.EINVAL)
        who, replace = CallerIdentity(caller), not flags & NOREPLACE
        with self._lock:
            version = self._names.visible(old_parent, old_name, who)
            target = self._names.visible(parent, name, who)
            if not replace and (target is not None or self._store.lookup(parent, name) is not None):
                raise CallError(errno.EEXIST)
            if version is None:
                self._rename_object((old_parent, old_name), (parent, name), target, replace=replace)
                return None
            if version is target:
                return None
            if version.failed:
                raise CallError(version.failed)
            self._require_place_for_file(old_parent, parent, name)
            if not version.writers and version.modified and not version.flushed:
                return Blocking(lambda: self._settle_and_rename(version, (parent, name), caller, replace=replace))
            try:
                self._rename_version(version, (parent, name), target, replace=replace)
            except QuotaExceeded as error:
                refused = error  # the name of an except clause ends with it

                def again() -> Blocking[None] | None:
                    return self.rename(old_parent, old_name, parent, name, flags, caller)

                return Blocking(lambda: self._rename_with_room(version, refused, (parent, name), again))
            return None

    def _require_place_for_file(self, old_parent: int, parent: int, name: bytes) -> None:
        if parent == ROOT_ID:
            raise CallError(errno.EPERM)
        if self._store.namespace_of(parent) != self._store.namespace_of(old_parent):
            raise CallError(errno.EXDEV)
        oid = self._store.lookup(parent, name)
        if oid is not None and self._store.attributes(oid).kind is Kind.DIRECTORY:
            raise CallError(errno.EISDIR)

    def _rename_with_room(
        self, version: Version, refused: QuotaExceeded, new: Name, again: Callable[[], Blocking[None] | None]
    ) -> None:
        """The version comes to another salt, whose quota has no room for it yet. Blocks."""
        if not self._volume.cache.make_room_in_salt(version.staged.namespace, new[1], version.staged.charged):
            raise refused
        rest = again()
        if rest is not None:
            rest.run()

    def _settle_and_rename(self, version: Version, new: Name, caller: Caller, *, replace: bool) -> None:
        self._publisher.settle(version)
        with self._lock:
            if version.fate is Fate.ABANDONED:
                raise CallError(errno.EIO)
            if not version.is_staged:
                # Its close finished first, and published it under its old name.
                self._rename_object(version.key, new, None, replace=replace)
                return
            target = self._names.visible(*new, CallerIdentity(caller))
            self._rename_version(version, new, target, replace=replace)

    def _rename_object(self, old: Name, new: Name, target: Version | None, *, replace: bool) -> None:
        oid = self._store.lookup(*old)
        if oid is None:
            raise CallError(errno.ENOENT)
        leftovers: list[Version] = []
        if self._store.attributes(oid).kind is Kind.DIRECTORY:
            replaced = self._store.lookup(*new)
            if target is not None or self._names.is_written(*new):
                raise CallError(errno.ENOTDIR)
            if replaced is not None and replaced != oid:
                leftovers = self._names.leftovers_in(replaced)
        else:
            self._naming.refuse_other_salt(new[0], old[1], new[1])
        taken = self._volume.attributes_at(*new)
        self._store.rename(*old, *new, replace=replace)
        self._replaced.note(taken, *new)
        self._unname(target)
        if self._versions.of_name(*new):
            # The kernel moves what it knows of the old name, long timeouts and all, over a name that it may keep
            # nothing of: the writers of its versions would see the object instead of their own.
            self._kernel.forget_name(*new)
        for version in leftovers:
            self._publisher.unname(version)

    def _rename_version(self, version: Version, new: Name, target: Version | None, *, replace: bool) -> None:
        old, base = version.key, version.base
        staging = self._names.is_staging_name(*new)
        viewed = None if version.modified else base
        if viewed is not None:
            self._naming.refuse_other_salt(new[0], old[1], new[1])
        self._drafting.charge_to_name(version.staged, *new)
        if viewed is None and version.flushed and not staging:
            self._publisher.publish(version, *new, replace=replace)
            self._unlink_former(*old)
        else:
            # Where it has nothing of its own to publish, the object that it is a view of gets the new name.
            if viewed is not None and self._store.lookup(*old) == viewed:
                self._store.rename(*old, *new, replace=replace)
            self._versions.move(version, *new, staging=staging)
            if viewed is None and not version.writers:
                self._unlink_former(*old)
        self._unname(target)
        self._publisher.retire_leftovers(*old)
        policy = self._policies.of(version.staged.namespace) if version.is_staged and version.key != old else None
        if policy is not None:
            policy.moved(version)

    def _unname(self, target: Version | None) -> None:
        if target is not None and target.is_staged:
            self._publisher.unname(target)

    def _unlink_former(self, parent: int, name: bytes) -> None:
        """The published object under the name of a version that is whole: the version stood for it, so the name that
        moved is gone."""
        former = self._store.lookup(parent, name)
        if former is not None:
            self._store.unlink(parent, name)
            self._kernel.forget_attributes(former)
