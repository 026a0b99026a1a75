"""OPEN and CREATE: who gets which content, and when a version begins."""

from __future__ import annotations

import errno
import os

from hcfs.errors import HcfsError
from hcfs.filesystem.calls import Blocking, Caller, CallError, Created, Opened
from hcfs.filesystem.damage import Damage
from hcfs.filesystem.entries import Entries
from hcfs.filesystem.handles.lock_handle import LockHandle
from hcfs.filesystem.handles.object_handle import ObjectHandle, ObjectReading
from hcfs.filesystem.handles.table import Handles
from hcfs.filesystem.handles.version_handle import VersionAccess, VersionHandle
from hcfs.filesystem.identity import CallerIdentity
from hcfs.filesystem.lock_files import LockFile, LockFiles, is_lock_name
from hcfs.filesystem.modes import drop_privileges, inherited_gid, may_open, writes
from hcfs.filesystem.operations.lookup import check_name, verifies_at_open
from hcfs.filesystem.versions.drafting import Drafting
from hcfs.filesystem.versions.estale_retries import EstaleRetries, Retry
from hcfs.filesystem.versions.replaced_names import ReplacedNames
from hcfs.filesystem.versions.version import Fate, Version, Versions
from hcfs.filesystem.versions.version_names import VersionNames
from hcfs.filesystem.volume import Volume
from hcfs.store import Kind, Pin


class Opening:
    """ESTALE is an order here: the kernel repeats its lookup, which then names the caller's own version."""

    def __init__(
        self,
        volume: Volume,
        versions: Versions,
        names: VersionNames,
        retries: EstaleRetries,
        replaced: ReplacedNames,
        drafting: Drafting,
        entries: Entries,
        handles: Handles,
        lock_files: LockFiles,
        damage: Damage,
        reading: ObjectReading,
        access: VersionAccess,
    ) -> None:
        self._volume = volume
        self._store = volume.store
        self._lock = volume.lock
        self._versions = versions
        self._names = names
        self._retries = retries
        self._replaced = replaced
        self._drafting = drafting
        self._entries = entries
        self._handles = handles
        self._lock_files = lock_files
        self._damage = damage
        self._reading = reading
        self._access = access

    def open(self, ino: int, flags: int, caller: Caller) -> Opened | Blocking[Opened]:
        """Open an inode. Blocking where the content is cut (O_TRUNC) or verified first.

        ESTALE: the inode isn't current, or a version was made for the caller; look the name up again.
        """
        self._volume.counts.opens += 1
        thread = caller.thread
        with self._lock:
            try:
                opened = self._open(ino, flags, caller, self._retries.of(thread))
            except HcfsError as error:
                self._retries.refused(error, thread, writes=writes(flags))
                raise
            self._retries.end(thread)
        if isinstance(opened, Pin):
            self._volume.cache.used(ino)
            return self.open_pinned(opened, verify=verifies_at_open(self._volume, ino))
        return opened

    def _open(self, ino: int, flags: int, caller: Caller, retry: Retry | None) -> Opened | Blocking[Opened] | Pin:
        """A pin where the object is opened as it is."""
        version = self._versions.get(ino)
        if version is not None and version.is_open_to_calls:
            return self._open_version(version, flags, CallerIdentity(caller))
        if self._lock_files.is_one(ino):
            return self._open_lock_file(ino, flags)
        current = self._store.is_current(ino)
        if not writes(flags):
            if current:
                return self._store.pin(ino)
            kept = None if retry is None else retry.take(ino)
            if retry is None or kept is None:
                raise CallError(errno.ESTALE)
            return self._open_kept(kept, verify=retry.verify)
        if current:
            self._drafting.of_object(ino, CallerIdentity(caller))
        else:
            # The kernel repeats an open once: for a writer the version must be there then.
            replaced = self._replaced.get(ino)
            if replaced is not None:
                self._drafting.of_name(replaced.parent, replaced.name, CallerIdentity(caller))
        raise CallError(errno.ESTALE)

    def _open_kept(self, pin: Pin, *, verify: bool) -> Opened | Blocking[Opened]:
        """Open what the caller's second lookup named and somebody has replaced since."""
        if self._store.removals.is_quarantined(pin.oid):
            pin.release()
            raise CallError(errno.ENOENT)
        return self.open_pinned(pin, verify=verify)

    def open_pinned(self, pin: Pin, *, verify: bool, keeps: object = None) -> Opened | Blocking[Opened]:
        """Open a committed object for reading. The handle has the pin from now on. Blocking where it is verified first:
        ENOENT then for a damaged one, and the pin is released. keeps: what is to stay known as long as it is open."""
        if verify:
            return Blocking(lambda: self._open_verified(pin, keeps))
        return Opened(self._handles.add(ObjectHandle(pin, self._reading, keeps)))

    def _open_verified(self, pin: Pin, keeps: object) -> Opened:
        self._damage.verify_for_open(pin)
        return Opened(self._handles.add(ObjectHandle(pin, self._reading, keeps)))

    # --- creating ----------------------------------------------------------------------------------------------------

    def create(self, parent: int, name: bytes, mode: int, flags: int, caller: Caller) -> Created:
        """Make a file that the caller doesn't see yet, and open it: a version, or at once a lock file.

        EEXIST with O_EXCL also when another process is writing that name. ESTALE when the name has come to exist since
        the kernel looked.
        """
        check_name(name)
        self._volume.counts.opens += 1
        thread = caller.thread
        with self._lock:
            retry = self._retries.of(thread)
            try:
                created = self._create(parent, name, mode, flags, CallerIdentity(caller), retried=retry is not None)
            except HcfsError as error:
                self._retries.refused(error, thread, writes=True)
                raise
            self._retries.end(thread)
            return created

    def _create(
        self, parent: int, name: bytes, mode: int, flags: int, who: CallerIdentity, *, retried: bool
    ) -> Created:
        own = self._drafting.own_now(parent, name, who)
        exists = own is not None or self._store.lookup(parent, name) is not None
        if flags & os.O_EXCL and (exists or self._names.is_written(parent, name)):
            raise CallError(errno.EEXIST)
        if exists and retried:
            created = self._open_existing(parent, name, flags, who)
            if created is not None:
                return created
        if exists:
            # The kernel looks again, checks permissions, and opens: once, so the version must be there then.
            if not is_lock_name(name):
                self._drafting.of_name(parent, name, who)
            raise CallError(errno.ESTALE)
        uid, gid = who.caller.uid, inherited_gid(self._store.attributes(parent), who.caller.gid)
        if is_lock_name(name):
            oid = self._store.create_empty(parent, name, mode, uid, gid)
            opened = Opened(self._handles.add(self._lock_handle(self._lock_files.hold(oid), writable=True)))
            return self._entries.of_object(self._entries.attributes_of_object(oid), fleeting=False), opened
        version = self._drafting.begin_empty(who, parent, name, mode, uid, gid)
        return self._entries.of_new_version(version), self._opened_by_writer(version)

    def _open_existing(self, parent: int, name: bytes, flags: int, who: CallerIdentity) -> Created | None:
        """Open a file that somebody made between the second lookup, which found none, and this call; the kernel won't
        look a third time. None where it has to be told so: it would have to check permissions, or follow a link."""
        attributes = self._volume.attributes_at(parent, name)
        if attributes is None or attributes.kind is not Kind.FILE or is_lock_name(name):
            return None
        if flags & os.O_ACCMODE == os.O_RDONLY or not may_open(attributes, flags, who.caller):
            return None
        self._drafting.of_name(parent, name, who)
        version = self._names.own(parent, name, who)
        if version is None or version.opened:
            return None
        opened = self._opened_by_writer(version)
        if flags & os.O_TRUNC and version.staged.size:
            version.changes += 1
            version.staged.truncate(0)  # Of a view, so that nothing has to be read or written.
        return self._entries.of_version(version), opened

    # --- versions ----------------------------------------------------------------------------------------------------

    def _open_version(self, version: Version, flags: int, who: CallerIdentity) -> Opened | Blocking[Opened]:
        if version.fate is Fate.ABANDONED:
            raise CallError(errno.ESTALE)
        if not writes(flags):
            if version.failed:
                raise CallError(version.failed)
            version.handles += 1
            return Opened(self._handles.add(VersionHandle(version, self._access, writable=False)))
        truncates = bool(flags & os.O_TRUNC)
        if not version.belongs_to(who.process):
            self._drafting.take_over(version, who, truncates=truncates)
        elif version.failed:
            if version.writers or not truncates:
                raise CallError(version.failed)
            self._drafting.begin_anew(version, who)
        opened = self._opened_by_writer(version)
        if truncates and who.caller.uid:
            drop_privileges(version.staged)
        if not truncates or (version.base is None and not version.staged.size):
            return opened
        return Blocking(lambda: self._truncated(version, opened))

    def _opened_by_writer(self, version: Version) -> Opened:
        version.opened = True
        version.closed_at = None
        version.handles += 1
        version.writers += 1
        return Opened(self._handles.add(VersionHandle(version, self._access, writable=True)))

    def _truncated(self, version: Version, opened: Opened) -> Opened:
        try:
            with self._access.publisher.change(version):
                version.staged.truncate(0)
        except HcfsError:
            self._handles.release(opened.handle)
            raise
        return opened

    # --- lock files --------------------------------------------------------------------------------------------------

    def _open_lock_file(self, ino: int, flags: int) -> Opened | Blocking[Opened]:
        lock_file = self._lock_files.hold(ino)
        opened = Opened(self._handles.add(self._lock_handle(lock_file, writable=writes(flags))))
        if not flags & os.O_TRUNC or not lock_file.attributes().size:
            return opened
        return Blocking(lambda: self._truncated_lock(lock_file, opened))

    def _lock_handle(self, lock_file: LockFile, *, writable: bool) -> LockHandle:
        return LockHandle(lock_file, self._lock_files, self._damage, self._reading.paths, writable=writable)

    def _truncated_lock(self, lock_file: LockFile, opened: Opened) -> Opened:
        try:
            lock_file.truncate(0)
        except HcfsError:
            self._handles.release(opened.handle)
            raise
        return opened
