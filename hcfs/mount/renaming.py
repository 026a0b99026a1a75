"""RENAME: the step that publishes what waits under a staging name."""

from __future__ import annotations

import errno
from collections.abc import Callable

from hcfs.mount.answers import Blocking, Caller, CallError
from hcfs.mount.core import Identity
from hcfs.mount.names import Names
from hcfs.mount.versions import Fate, Name, Version
from hcfs.store import Kind
from hcfs.store.errors import QuotaExceeded

NOREPLACE = 1
"""RENAME_NOREPLACE of renameat2(2); the other flags are refused."""


class Renaming(Names):
    """Atomic, and from memory, but for a version that was written through a mapping after its last close."""

    def rename(
        self, old_parent: int, old_name: bytes, parent: int, name: bytes, flags: int, caller: Caller
    ) -> Blocking[None] | None:
        """Rename what the old name means to the caller.

        A version that no write has touched since its last FLUSH is published under a new name that isn't a staging
        name; one that is still being written gets its new name and nothing else. A version that failed answers its
        errno. EXDEV across namespaces, EEXIST with RENAME_NOREPLACE, EINVAL with RENAME_EXCHANGE.
        """
        self.check_name(old_name)
        self.check_name(name)

        def again() -> Blocking[None] | None:
            return self.rename(old_parent, old_name, parent, name, flags, caller)

        if flags & ~NOREPLACE:
            raise CallError(errno.EINVAL)
        who = Identity(caller)
        with self.lock:
            version = self.visible_version(old_parent, old_name, who)
            target = self.visible_version(parent, name, who)
            if flags & NOREPLACE and (target is not None or self.store.lookup(parent, name) is not None):
                raise CallError(errno.EEXIST)
            if version is None:
                self._rename_object((old_parent, old_name), (parent, name), target, replace=not flags & NOREPLACE)
                return None
            if version is target:
                return None
            if version.failed:
                raise CallError(version.failed)
            self.refuse_root_file(parent)
            if self.store.namespace_of(parent) != self.store.namespace_of(old_parent):
                raise CallError(errno.EXDEV)
            self._refuse_directory(parent, name)
            if not version.writers and version.modified and not version.flushed:
                return Blocking(lambda: self._settle_and_rename(version, (parent, name), flags, caller))
            try:
                self._rename_version(version, (parent, name), target, replace=not flags & NOREPLACE)
            except QuotaExceeded as error:
                refused = error
                return Blocking(lambda: self._rename_with_room(version, refused, (parent, name), again))
            return None

    def _rename_with_room(
        self, version: Version, refused: QuotaExceeded, new: Name, again: Callable[[], Blocking[None] | None]
    ) -> None:
        """The version comes to another salt, whose quota has no room for it yet. Blocks."""
        if not self.cache.make_room_in_salt(version.staged.namespace, new[1], version.staged.charged):
            raise refused
        rest = again()
        if rest is not None:
            rest.run()

    def _settle_and_rename(self, version: Version, new: Name, flags: int, caller: Caller) -> None:
        self.settle_version(version)
        with self.lock:
            if version.fate is Fate.ABANDONED:
                raise CallError(errno.EIO)
            if version.fate is not Fate.STAGED:
                # Its close finished first, and published it under its old name.
                old_parent, old_name = version.key
                self._rename_object((old_parent, old_name), new, None, replace=not flags & NOREPLACE)
                return
            target = self.visible_version(*new, Identity(caller))
            self._rename_version(version, new, target, replace=not flags & NOREPLACE)

    def _rename_object(self, old: Name, new: Name, target: Version | None, *, replace: bool) -> None:
        oid = self.store.lookup(*old)
        if oid is None:
            raise CallError(errno.ENOENT)
        leftovers: list[Version] = []
        if self.store.attributes(oid).kind is Kind.DIRECTORY:
            replaced = self.store.lookup(*new)
            if target is not None or self._written_now(*new):
                raise CallError(errno.ENOTDIR)
            if replaced is not None and replaced != oid:
                leftovers = self._leftovers_in(replaced)
        else:
            self.refuse_other_salt(new[0], old[1], new[1])
        taken = self.attributes_at(*new)
        self.store.rename(*old, *new, replace=replace)
        self.note_replaced(taken, *new)
        if target is not None and target.fate is Fate.STAGED:
            self._unname(target)
        if self.versions.of_name(*new):
            # The kernel moves what it knows of the old name, long timeouts and all, over a name that it may keep
            # nothing of: the writers of its versions would see the object instead of their own.
            self.kernel.forget_name(*new)
        for version in leftovers:
            self._unname(version)

    def _rename_version(self, version: Version, new: Name, target: Version | None, *, replace: bool) -> None:
        old = version.key
        staging = self.is_staging_name(*new)
        base = version.base
        if not version.modified and base is not None:
            self.refuse_other_salt(new[0], old[1], new[1])
        self.charge_to_name(version.staged, *new)
        if not version.modified and base is not None:
            # Nothing of its own to publish: the object that it is a view of gets the new name.
            if self.store.lookup(*old) == base:
                self.store.rename(*old, *new, replace=replace)
            self.versions.move(version, *new, staging=staging)
        elif version.flushed and not staging:
            self._publish(version, *new, replace=replace)
            self._unlink_former(*old)
        else:
            self.versions.move(version, *new, staging=staging)
            if not version.writers:
                self._unlink_former(*old)
        if target is not None and target.fate is Fate.STAGED:
            self._unname(target)
        self._retire_leftovers(*old)

    def _unlink_former(self, parent: int, name: bytes) -> None:
        """The published object under the name of a version that is whole: the version stood for it, so the name that
        moved is gone."""
        former = self.store.lookup(parent, name)
        if former is not None:
            self.store.unlink(parent, name)
            self.kernel.forget_attributes(former)

    def _refuse_directory(self, parent: int, name: bytes) -> None:
        oid = self.store.lookup(parent, name)
        if oid is not None and self.store.attributes(oid).kind is Kind.DIRECTORY:
            raise CallError(errno.EISDIR)
