"""MKDIR, SYMLINK, MKNOD, UNLINK, RMDIR, LINK: names that come and go."""

from __future__ import annotations

import errno
import stat

from hcfs.filesystem.calls import Caller, CallError, Entry
from hcfs.filesystem.entries import Entries
from hcfs.filesystem.identity import CallerIdentity
from hcfs.filesystem.inodes import is_remote, is_virtual
from hcfs.filesystem.modes import inherited_gid
from hcfs.filesystem.operations.lookup import check_name
from hcfs.filesystem.versions.publisher import Publisher
from hcfs.filesystem.versions.version import Version, Versions
from hcfs.filesystem.versions.version_names import VersionNames
from hcfs.filesystem.volume import Volume
from hcfs.store import Kind


class Naming:
    """All from memory."""

    def __init__(
        self, volume: Volume, versions: Versions, names: VersionNames, publisher: Publisher, entries: Entries
    ) -> None:
        self._volume = volume
        self._store = volume.store
        self._lock = volume.lock
        self._versions = versions
        self._names = names
        self._publisher = publisher
        self._entries = entries

    def mkdir(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        """Make a directory; at the root, a namespace."""
        check_name(name)
        with self._lock:
            self._names.refuse_visible(parent, name, CallerIdentity(caller))
            if self._names.is_written(parent, name):
                # The file could never be published over the directory.
                raise CallError(errno.EEXIST)
            directory = self._store.attributes(parent)
            bits = mode & 0o7777 | directory.mode & stat.S_ISGID
            oid = self._store.mkdir(parent, name, bits, caller.uid, inherited_gid(directory, caller.gid))
            return self._made(oid, parent, name)

    def symlink(self, parent: int, name: bytes, target: bytes, caller: Caller) -> Entry:
        """Make a symlink."""
        check_name(name)
        with self._lock:
            self._names.refuse_visible(parent, name, CallerIdentity(caller))
            gid = inherited_gid(self._store.attributes(parent), caller.gid)
            return self._made(self._store.symlink(parent, name, target, caller.uid, gid), parent, name)

    def mknod(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        """Make an empty regular file, visible at once, as there is no handle whose close could publish it; EPERM for
        all other kinds."""
        check_name(name)
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise CallError(errno.EPERM)
        with self._lock:
            self._names.refuse_visible(parent, name, CallerIdentity(caller))
            gid = inherited_gid(self._store.attributes(parent), caller.gid)
            return self._made(self._store.create_empty(parent, name, mode, caller.uid, gid), parent, name)

    def unlink(self, parent: int, name: bytes, caller: Caller) -> None:
        """Remove what the name means to the caller: its own version, the waiting one, the committed object under
        either. Versions that other processes are writing stay theirs."""
        check_name(name)
        with self._lock:
            version = self._names.visible(parent, name, CallerIdentity(caller))
            oid = self._store.lookup(parent, name)
            if version is None and oid is None:
                raise CallError(errno.ENOENT)
            if oid is not None:
                self._store.unlink(parent, name)
            if version is not None:
                self._publisher.unname(version)
                self._publisher.retire_leftovers(parent, name)

    def rmdir(self, parent: int, name: bytes) -> None:
        """Remove an empty directory, closed versions that wait under staging names with it; ENOTEMPTY while anybody
        writes a file in it."""
        check_name(name)
        with self._lock:
            oid = self._store.lookup(parent, name)
            if oid is None:
                raise CallError(errno.ENOENT)
            leftovers = self._names.leftovers_in(oid)
            self._store.rmdir(parent, name)
            for version in leftovers:
                self._publisher.unname(version)

    def link(self, ino: int, parent: int, name: bytes, caller: Caller) -> Entry:
        """A second name for a committed object. Of a version that is sealed: publish it under the new name, beside its
        present one. EPERM for one that is still being written, EXDEV for what isn't in the same namespace."""
        check_name(name)
        if is_virtual(ino) or is_remote(ino):
            raise CallError(errno.EXDEV)
        with self._lock:
            self._names.refuse_visible(parent, name, CallerIdentity(caller))
            version = self._versions.get(ino)
            if version is not None and version.is_open_to_calls:
                return self._link_version(version, parent, name)
            for _, former in self._store.names_of(ino):
                self.refuse_other_salt(parent, former, name)
            self._store.link(ino, parent, name)
            return self._made(ino, parent, name)

    def _link_version(self, version: Version, parent: int, name: bytes) -> Entry:
        store = self._store
        if version.failed:
            raise CallError(version.failed)
        if not version.is_staged:
            raise CallError(errno.ENOENT)
        if store.namespace_of(parent) != store.namespace_of(version.parent):
            raise CallError(errno.EXDEV)
        base, (old_parent, old_name) = version.base, version.key
        self.refuse_other_salt(parent, old_name, name)
        if not version.modified and base is not None:
            store.link(base, parent, name)
            return self._made(base, parent, name)
        if not version.flushed:
            raise CallError(errno.EPERM)
        self._publisher.publish(version, parent, name, replace=False)
        if store.lookup(old_parent, old_name) is not None:
            store.unlink(old_parent, old_name)
        store.link(version.ino, old_parent, old_name)
        return self._made(version.ino, parent, name)

    def _made(self, oid: int, parent: int, name: bytes) -> Entry:
        attributes = self._entries.attributes_of_object(oid)
        if attributes.kind is Kind.FILE:
            self._volume.cache.used(oid)
        return self._entries.of_object(attributes, fleeting=bool(self._versions.of_name(parent, name)))

    def refuse_other_salt(self, parent: int, name: bytes, other: bytes) -> None:
        """EXDEV for a name of a published file beside one of another salt that has a quota of its own: as between
        projects of other filesystems' quotas, and mv then copies."""
        if self._volume.cache.quotas.differ(self._store.namespace_of(parent), name, other):
            raise CallError(errno.EXDEV)
