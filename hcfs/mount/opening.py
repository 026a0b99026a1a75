"""OPEN and CREATE: who gets which content, and when a version begins."""

from __future__ import annotations

import errno
import os
import stat
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from hcfs.errors import HcfsError
from hcfs.mount.answers import Blocking, Caller, CallError, Entry, Opened
from hcfs.mount.core import Identity
from hcfs.mount.handles import LockHandle, VersionHandle
from hcfs.mount.lockfiles import LockFile, is_lock_name
from hcfs.mount.object_handle import ObjectHandle
from hcfs.mount.repeating import Repeating, may_open
from hcfs.mount.versions import Fate, Version
from hcfs.store import Kind, Pin
from hcfs.store.errors import DamagedGranule

Created = tuple[Entry, Opened]


def without_privileges(mode: int) -> int:
    """The mode without setuid, and without setgid where it is one: without group execution it means mandatory
    locking."""
    return mode & ~(stat.S_ISUID | (stat.S_ISGID if mode & stat.S_IXGRP else 0))


class Opening(Repeating):
    """ESTALE is an order here: the kernel repeats its lookup, which then names the caller's own version."""

    def open(self, ino: int, flags: int, caller: Caller) -> Opened | Blocking[Opened]:
        """Open an inode. Blocking where the content is cut (O_TRUNC) or verified first.

        ESTALE: the inode isn't current, or a version was made for the caller; look the name up again.
        """
        self.calls.opens += 1
        writes = bool(flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC)
        kept: Pin | None = None
        with self.lock, self.repeatable(caller, writes=writes) as repeat:
            version = self.versions.get(ino)
            if version is not None and version.fate is not Fate.PUBLISHED:
                return self._open_version(version, flags, writes, Identity(caller))
            if ino in self.lock_files or self._named_as_lock(ino):
                return self._open_lock_file(ino, flags, writes)
            if repeat is not None and not writes and not self.store.is_current(ino):
                kept = repeat.take(ino)
                verify = repeat.verify
            if kept is not None:
                return self._open_kept(kept, verify)
            if not self.store.is_current(ino):
                # The kernel repeats an open once: for a writer the version must be there then.
                replaced = self.replaced(ino) if writes else None
                if replaced is not None:
                    self.version_of_name(replaced.parent, replaced.name, Identity(caller))
                raise CallError(errno.ESTALE)
            if writes:
                self.version_for_writing(ino, Identity(caller))
                raise CallError(errno.ESTALE)
            pin = self.store.pin(ino)
        self.cache.used(ino)
        handle = ObjectHandle(pin)
        if self.verifies_at_open(ino):
            return Blocking(lambda: self._open_verified(handle))
        return Opened(self.handles.add(handle))

    def _open_kept(self, pin: Pin, verify: bool) -> Opened | Blocking[Opened]:
        """Open what the caller's second lookup named and somebody has replaced since."""
        if self.store.is_quarantined(pin.oid):
            pin.release()
            raise CallError(errno.ENOENT)
        handle = ObjectHandle(pin)
        if verify:
            return Blocking(lambda: self._open_verified(handle))
        return Opened(self.handles.add(handle))

    def create(self, parent: int, name: bytes, mode: int, flags: int, caller: Caller) -> Created:
        """Make a file that the caller doesn't see yet, and open it: a version, or at once a lock file.

        EEXIST with O_EXCL also when another process is writing that name. ESTALE when the name has come to exist since
        the kernel looked.
        """
        self.check_name(name)
        self.refuse_root_file(parent)
        who = Identity(caller)
        self.calls.opens += 1
        with self.lock, self.repeatable(caller, writes=True) as repeat:
            own = self.own_version_now(parent, name, who)
            exists = own is not None or self.store.lookup(parent, name) is not None
            if flags & os.O_EXCL and (exists or self._written_now(parent, name)):
                raise CallError(errno.EEXIST)
            if exists and repeat is not None:
                created = self._open_existing(parent, name, flags, who)
                if created is not None:
                    return created
            if exists:
                # The kernel looks again, checks permissions, and opens: once, so the version must be there then.
                if not is_lock_name(name):
                    self.version_of_name(parent, name, who)
                raise CallError(errno.ESTALE)
            gid = self.inherited_gid(parent, caller.gid)
            if is_lock_name(name):
                oid = self.store.create_empty(parent, name, mode, caller.uid, gid)
                opened = self._open_lock_file(oid, 0, True)
                assert isinstance(opened, Opened)
                return self.object_entry(self.object_attributes(oid), False), opened
            version = self._make_version(who, parent, name, self._stage_empty(parent, mode, caller.uid, gid))
            return self.created_entry(version), self._opened_by_writer(version)

    def _open_existing(self, parent: int, name: bytes, flags: int, who: Identity) -> Created | None:
        """Open a file that somebody made between the second lookup, which found none, and this call; the kernel won't
        look a third time. None where it has to be told so: it would have to check permissions, or follow a link."""
        attributes = self.attributes_at(parent, name)
        if attributes is None or attributes.kind is not Kind.FILE or is_lock_name(name):
            return None
        if flags & os.O_ACCMODE == os.O_RDONLY or not may_open(attributes, flags, who.caller):
            return None
        self.version_of_name(parent, name, who)
        version = self.own_version(parent, name, who)
        if version is None or version.opened:
            return None
        opened = self._opened_by_writer(version)
        if flags & os.O_TRUNC and version.staged.size:
            version.changes += 1
            version.staged.truncate(0)  # Of a view, so that nothing has to be read or written.
        return self.version_entry(version), opened

    def inherited_gid(self, parent: int, gid: int) -> int:
        """The group of something new: the directory's where its setgid bit says so."""
        directory = self.store.attributes(parent)
        return directory.gid if directory.mode & stat.S_ISGID else gid

    def _written_now(self, parent: int, name: bytes) -> bool:
        return any(version.writers or version.closing for version in self.versions.of_name(parent, name))

    # --- versions ----------------------------------------------------------------------------------------------------

    def _open_version(self, version: Version, flags: int, writes: bool, who: Identity) -> Opened | Blocking[Opened]:
        if version.fate is Fate.ABANDONED:
            raise CallError(errno.ESTALE)
        if not writes:
            if version.failed:
                raise CallError(version.failed)
            version.handles += 1
            return Opened(self.handles.add(VersionHandle(version, False)))
        if not self._is_mine(version, who):
            self._take_over(version, flags, who)
        elif version.failed:
            if version.writers or not flags & os.O_TRUNC:
                raise CallError(version.failed)
            self._begin_anew(version, who)
        opened = self._opened_by_writer(version)
        if flags & os.O_TRUNC and who.caller.uid:
            self.drop_privileges(version)
        if not flags & os.O_TRUNC or (version.base is None and not version.staged.size):
            return opened
        return Blocking(lambda: self._open_truncated(version, opened))

    def _is_mine(self, version: Version, who: Identity) -> bool:
        if version.owner is None:
            return who.process is None and not version.opened
        return version.owner == who.process

    def _take_over(self, version: Version, flags: int, who: Identity) -> None:
        """Another process's version, reached under a staging name. Appending goes on with it; a writer that truncates
        gets its own version, since the other may still rename its."""
        if version.fate is not Fate.STAGED or not version.waiting:
            raise CallError(errno.ESTALE)
        if version.failed or flags & os.O_TRUNC:
            if self.own_version(version.parent, version.name, who) is None:
                self._begin_anew(version, who)
            raise CallError(errno.ESTALE)
        version.owner = who.process

    def _begin_anew(self, version: Version, who: Identity) -> None:
        """An empty version in place of one that is closed, for the caller. Raises ESTALE."""
        like = version.staged.attributes()
        parent, name = version.key
        if version.owner is not None and version.owner == who.process:
            self._unname(version)
        self._retire_leftovers(parent, name)
        self._make_version(who, parent, name, self._stage_empty(parent, like.mode, like.uid, like.gid))
        raise CallError(errno.ESTALE)

    def _opened_by_writer(self, version: Version) -> Opened:
        version.opened = True
        version.closed_at = None
        version.handles += 1
        version.writers += 1
        return Opened(self.handles.add(VersionHandle(version, True)))

    def _open_truncated(self, version: Version, opened: Opened) -> Opened:
        try:
            self.truncate_version(version, 0)
        except HcfsError:
            self.release(opened.handle)
            raise
        return opened

    def truncate_version(self, version: Version, size: int) -> None:
        """Cut or extend with zeros. Blocks. EIO on a version that is published or abandoned; raises what the store
        raises, and the version then has failed."""
        with self._change(version):
            version.staged.truncate(size)

    @contextmanager
    def _change(self, version: Version) -> Iterator[None]:
        """A change of a version's bytes; the version has failed when the store refuses it. Lock not held."""
        with self.lock:
            if version.failed:
                raise CallError(version.failed)
            if version.fate in (Fate.PUBLISHED, Fate.ABANDONED):
                raise CallError(errno.EIO)
            version.changes += 1
            version.writing += 1
        try:
            yield
        except BaseException as error:
            with self.lock:
                self._fail(version, error.errno if isinstance(error, HcfsError) else errno.EIO)
            raise
        finally:
            with self.lock:
                version.writing -= 1

    def drop_privileges(self, version: Version) -> None:
        """Content that another user changes isn't what its owner gave setuid or setgid to. With the data plane the
        kernel leaves that to the filesystem (HANDLE_KILLPRIV_V2). Lock held."""
        mode = version.staged.attributes().mode
        kept = without_privileges(mode)
        if kept != mode:
            version.staged.set_attributes(mode=kept)

    @abstractmethod
    def release(self, number: int) -> None:
        """Close a handle."""

    # --- lock files and verified objects -----------------------------------------------------------------------------

    def _named_as_lock(self, ino: int) -> bool:
        return any(is_lock_name(name) for _, name in self.store.names_of(ino))

    def lock_file(self, ino: int) -> LockFile:
        """The lock file of an inode, with one handle more. Lock held."""
        lock_file = self.lock_files.get(ino)
        if lock_file is None:
            account = self.cache.account(self.store.namespace_of(ino), b"")
            lock_file = self.lock_files[ino] = LockFile(self.store, ino, account)
        lock_file.handles += 1
        return lock_file

    def _open_lock_file(self, ino: int, flags: int, writes: bool) -> Opened | Blocking[Opened]:
        lock_file = self.lock_file(ino)
        opened = Opened(self.handles.add(LockHandle(lock_file, writes)))
        if not flags & os.O_TRUNC or not lock_file.attributes().size:
            return opened
        return Blocking(lambda: self._open_truncated_lock(lock_file, opened))

    def _open_truncated_lock(self, lock_file: LockFile, opened: Opened) -> Opened:
        try:
            lock_file.truncate(0)
        except HcfsError:
            self.release(opened.handle)
            raise
        return opened

    def _open_verified(self, handle: ObjectHandle) -> Opened:
        """ENOENT instead of a bad object: for clients that take only that for a miss, and mmap users, who would get
        SIGBUS."""
        try:
            self.store.verify(handle.pin)
        except DamagedGranule as error:
            self.quarantine(error.oid, error.generation, str(error))
            handle.pin.release()
            raise CallError(errno.ENOENT) from error
        return Opened(self.handles.add(handle))
