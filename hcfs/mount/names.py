"""MKDIR, SYMLINK, MKNOD, UNLINK, RMDIR, LINK: names that come and go."""

from __future__ import annotations

import errno
import stat

from hcfs.errors import HcfsError
from hcfs.mount.answers import Blocking, Caller, CallError, Entry
from hcfs.mount.attributes import AttributeChanges
from hcfs.mount.core import Identity
from hcfs.mount.versions import Fate, Version
from hcfs.store import Kind


class Names(AttributeChanges):
    """All from memory, but in a namespace whose files go to an origin."""

    def mkdir(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        """Make a directory; at the root, a namespace."""
        self.check_name(name)
        with self.lock:
            self._refuse_own(parent, name, caller)
            if self._written_now(parent, name):
                # The file could never be published over the directory.
                raise CallError(errno.EEXIST)
            directory = self.store.attributes(parent)
            gid, bits = caller.gid, mode & 0o7777
            if directory.mode & stat.S_ISGID:
                gid, bits = directory.gid, bits | stat.S_ISGID
            oid = self.store.mkdir(parent, name, bits, caller.uid, gid)
            return self._made(oid, parent, name)

    def symlink(self, parent: int, name: bytes, target: bytes, caller: Caller) -> Entry:
        """Make a symlink."""
        self.check_name(name)
        self.refuse_root_file(parent)
        with self.lock:
            self._refuse_own(parent, name, caller)
            gid = self.inherited_gid(parent, caller.gid)
            return self._made(self.store.symlink(parent, name, target, caller.uid, gid), parent, name)

    def mknod(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        """Make an empty regular file, visible at once, as there is no handle whose close could publish it; EPERM for
        all other kinds."""
        self.check_name(name)
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise CallError(errno.EPERM)
        self.refuse_root_file(parent)
        with self.lock:
            self._refuse_own(parent, name, caller)
            gid = self.inherited_gid(parent, caller.gid)
            oid = self.store.create_empty(parent, name, mode, caller.uid, gid)
            return self._made(oid, parent, name)

    def unlink(self, parent: int, name: bytes, caller: Caller) -> Blocking[None] | None:
        """Remove what the name means to the caller: its own version, the waiting one, the committed object under
        either. Versions that other processes are writing stay theirs."""
        self.check_name(name)
        with self.lock:
            version = self.visible_version(parent, name, Identity(caller))
            oid = self.store.lookup(parent, name)
            if version is None and oid is None:
                raise CallError(errno.ENOENT)
            if oid is not None:
                self.store.unlink(parent, name)
            if version is not None:
                self._unname(version)
                self._retire_leftovers(parent, name)
        return None

    def rmdir(self, parent: int, name: bytes) -> None:
        """Remove an empty directory, closed versions that wait under staging names with it; ENOTEMPTY while anybody
        writes a file in it."""
        self.check_name(name)
        with self.lock:
            oid = self.store.lookup(parent, name)
            if oid is None:
                raise CallError(errno.ENOENT)
            leftovers = self._leftovers_in(oid)
            self.store.rmdir(parent, name)
            for version in leftovers:
                self._unname(version)

    def link(self, ino: int, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        """A second name for a committed object. Of a version that is sealed: publish it under the new name, beside its
        present one. EPERM for one that is still being written."""
        self.check_name(name)
        self.refuse_root_file(parent)
        with self.lock:
            self._refuse_own(parent, name, caller)
            version = self.versions.get(ino)
            if version is None or version.fate is Fate.PUBLISHED:
                for _, former in self.store.names_of(ino):
                    self.refuse_other_salt(parent, former, name)
                self.store.link(ino, parent, name)
                return self._made(ino, parent, name)
            return self._link_version(version, parent, name)

    def _link_version(self, version: Version, parent: int, name: bytes) -> Entry:
        if version.failed:
            raise CallError(version.failed)
        if version.fate is not Fate.STAGED:
            raise CallError(errno.ENOENT)
        if self.store.namespace_of(parent) != self.store.namespace_of(version.parent):
            raise CallError(errno.EXDEV)
        base, (old_parent, old_name) = version.base, version.key
        self.refuse_other_salt(parent, old_name, name)
        if not version.modified and base is not None:
            self.store.link(base, parent, name)
            return self._made(base, parent, name)
        if not version.flushed:
            raise CallError(errno.EPERM)
        self._publish(version, parent, name, replace=False)
        former = self.store.lookup(old_parent, old_name)
        if former is not None:
            self.store.unlink(old_parent, old_name)
        self.store.link(version.ino, old_parent, old_name)
        return self._made(version.ino, parent, name)

    # --- shared with renames -----------------------------------------------------------------------------------------

    def _made(self, oid: int, parent: int, name: bytes) -> Entry:
        attributes = self.object_attributes(oid)
        if attributes.kind is Kind.FILE:
            self.cache.used(oid)
        return self.object_entry(attributes, bool(self.versions.of_name(parent, name)))

    def _refuse_own(self, parent: int, name: bytes, caller: Caller) -> None:
        """EEXIST where the caller sees a version. What others are writing is no obstacle: it will replace, or not."""
        if self.visible_version(parent, name, Identity(caller)) is not None:
            raise CallError(errno.EEXIST)

    def _leftovers_in(self, directory: int) -> list[Version]:
        """Versions that go with a directory; ENOTEMPTY when one of them is being written."""
        versions = self.versions.in_directory(directory)
        if any(version.writers or version.closing or not version.opened for version in versions):
            raise CallError(errno.ENOTEMPTY)
        return versions

    def settle_version(self, version: Version) -> None:
        """Seal a closed version whose last writes came after its last FLUSH. Blocks."""
        try:
            self.seal(version, as_flush=True)
        except HcfsError as error:
            raise CallError(error.errno) from error
