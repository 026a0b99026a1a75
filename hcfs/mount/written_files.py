"""Files that are stored here and go to an origin: the calls that make, change, name and remove them.

A name leads to what was written here as long as the origin doesn't have it, else to what the origin has. What removes a
name waits for the origin, so nothing has to be remembered of what is gone."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from hcfs.cache import ABSENT, SyncRecord
from hcfs.errors import HcfsError
from hcfs.mount.answers import Blocking, Caller, CallError, Entry, Opened, finish
from hcfs.mount.attributes import AttributeChanges, Changes
from hcfs.mount.core import Identity
from hcfs.mount.ingest import Ingest
from hcfs.mount.listing import Listing
from hcfs.mount.lockfiles import is_lock_name
from hcfs.mount.lookup import Lookup
from hcfs.mount.namespace_origin import Origin
from hcfs.mount.opening import Created, Opening
from hcfs.mount.outgoing import key_of
from hcfs.mount.remote import Remote
from hcfs.mount.remote_files import OPEN_TRIES
from hcfs.mount.renaming import NOREPLACE
from hcfs.mount.sync_marks import UNKNOWN, mark
from hcfs.mount.versions import Fate, Version
from hcfs.mount.write_through import ATTEMPTS, WriteThrough
from hcfs.origin import OriginChanged, OriginError, OriginUploader, Patience
from hcfs.store import ROOT_ID, Pin


class WrittenFiles(WriteThrough):
    """Each method is its superclass's where no such namespace is concerned."""

    # --- what a name leads to ----------------------------------------------------------------------------------------

    def _is_plain(self, parent: int, name: bytes, caller: Caller) -> bool:
        """Whether the name's answer needs no origin: a version that the caller sees, or what only the device has."""
        if is_lock_name(name):
            return True
        with self.lock:
            if self.visible_version(parent, name, Identity(caller)) is not None:
                return True
            with self.store.lock:
                oid = self.store.lookup(parent, name)
                return oid is not None and self.is_here(oid)

    def lookup(self, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        inside = parent != ROOT_ID and name not in (b".", b"..")
        if inside and (self.writable_origin(parent) is not None or self.is_refused(parent)):
            self.check_name(name)
            if self._is_plain(parent, name, caller):
                return Lookup.lookup(self, parent, name, caller)
        return super().lookup(parent, name, caller)

    def _look_up_listed(self, origin: Origin, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        if origin.uploader is None:
            return super()._look_up_listed(origin, parent, name, caller)
        if self._is_plain(parent, name, caller):
            return Lookup.lookup(self, parent, name, caller)
        entry = finish(super()._look_up_listed(origin, parent, name, caller))
        with self.lock:
            fleeting = bool(self.versions.of_name(parent, name))
            self._keep_for_reading(entry, caller)
        return entry._replace(entry_timeout=0.0, attr_timeout=0.0) if fleeting else entry

    def _keep_for_reading(self, entry: Entry, caller: Caller) -> None:
        """The second lookup of a walk whose open was answered with ESTALE: what it names can be opened, even if
        somebody replaces it before. Lock held."""
        repeat = self.repeats.of(caller.thread)
        if repeat is not None and not repeat.writes and entry.attributes is not None:
            with suppress(HcfsError):  # only the origin has it
                repeat.keep(self.store.pin(entry.ino), self.verifies_at_open(entry.ino))

    def _led_to(self, directory: int, name: bytes, ino: int) -> Entry | None:
        if self.writable_origin(directory) is not None:
            oid = self.store.lookup(directory, name)
            if self.versions.get(ino) is not None or (oid is not None and self.is_here(oid)):
                return Listing._led_to(self, directory, name, ino)
        return super()._led_to(directory, name, ino)

    # --- opening -----------------------------------------------------------------------------------------------------

    def open(self, ino: int, flags: int, caller: Caller) -> Opened | Blocking[Opened]:
        """As RemoteFiles.open. A writer of what the origin has gets a version of it, by way of ESTALE: an empty one
        where the content is cut, else after it was fetched."""
        origin = self.writable_origin(ino)
        if origin is None:
            reads = flags & os.O_ACCMODE == os.O_RDONLY and not flags & os.O_TRUNC
            if reads and self.is_refused(ino) and self.is_here(ino):
                return Opening.open(self, ino, flags, caller)
            return super().open(ino, flags, caller)
        if self.is_here(ino):
            return Opening.open(self, ino, flags, caller)
        if flags & os.O_ACCMODE == os.O_RDONLY and not flags & os.O_TRUNC:
            with self._read_again(caller):
                answer = super().open(ino, flags, caller)
            if not isinstance(answer, Blocking):
                self._was_opened(caller)
                return answer
            return Blocking(lambda: self._finish_open(answer, caller), origin=answer.origin)
        remote = self._remote(ino)
        if remote is None:
            return Opening.open(self, ino, flags, caller)
        empty = bool(flags & os.O_TRUNC)
        self.calls.opens += 1
        with self.lock, self.store.lock:
            fetched = empty or self._cached_oid(remote) is not None or self._written_over(remote)
        if fetched:
            return self._begin_version(remote, caller, empty=empty)
        return Blocking(lambda: self._fetch_for_writing(origin, remote, caller), origin=True)

    @contextmanager
    def _read_again(self, caller: Caller) -> Iterator[None]:
        """An open for reading that the kernel repeats when it is answered with ESTALE. Lock not held."""
        try:
            yield
        except CallError as error:
            if error.errno == errno.ESTALE:
                with self.lock:
                    self.repeats.begin(caller.thread, False, self.clock())
            raise

    def _finish_open(self, answer: Blocking[Opened], caller: Caller) -> Opened:
        with self._read_again(caller):
            opened = answer.run()
        self._was_opened(caller)
        return opened

    def _was_opened(self, caller: Caller) -> None:
        if self.repeats:
            with self.lock:
                self.repeats.end(caller.thread)

    def _begin_version(self, remote: Remote, caller: Caller, *, empty: bool) -> Opened:
        """Make the caller's version of a name that the origin has, and answer ESTALE."""
        parent, name = remote.parent, remote.name
        who = Identity(caller)
        with self.lock, self.repeatable(caller, writes=True):
            if self.own_version(parent, name, who) is None:
                if self.store.lookup(parent, name) is not None:
                    self.version_of_name(parent, name, who)
                elif empty:
                    like = self._remote_attributes(remote)
                    self._make_version(who, parent, name, self._stage_empty(parent, like.mode, like.uid, like.gid))
            raise CallError(errno.ESTALE)

    def _fetch_for_writing(self, origin: Origin, remote: Remote, caller: Caller) -> Opened:
        """Blocks."""
        pin = self._fetched(origin, remote)
        try:
            return self._begin_version(remote, caller, empty=False)
        finally:
            pin.release()

    def _fetched(self, origin: Origin, remote: Remote) -> Pin:
        """What the origin has, once it is on the device. Blocks. EIO, or ESTALE where it has other content by now."""
        assert self.origins is not None
        for _ in range(OPEN_TRIES):
            with self.lock, self.store.lock:
                found = self._pin_or_begin(origin, remote)
            if not isinstance(found, Ingest):
                return found
            try:
                found.wait()
            except OriginChanged:
                self.origins.list_now(origin)
        raise CallError(errno.EIO)

    def _pin_or_begin(self, origin: Origin, remote: Remote) -> Pin | Ingest:
        if origin.uploader is not None and self._written_over(remote):
            raise CallError(errno.ESTALE)
        return super()._pin_or_begin(origin, remote)

    def _written_over(self, remote: Remote) -> bool:
        """Whether a file that only the device has is under the name now."""
        oid = self.store.lookup(remote.parent, remote.name)
        return oid is not None and self.is_here(oid)

    # --- names that come ---------------------------------------------------------------------------------------------

    def create(self, parent: int, name: bytes, mode: int, flags: int, caller: Caller) -> Created:
        """As Opening.create. EILSEQ and EINVAL for a name that can't be a key."""
        origin = self.writable_origin(parent)
        if origin is not None and self.goes_out(parent, name):
            self.check_name(name)
            key_of(self.store, parent, name)
            origin.require_certain(parent, name)
            if flags & os.O_EXCL and origin.get(parent, name) is not None:
                raise CallError(errno.EEXIST)
        return super().create(parent, name, mode, flags, caller)

    def mkdir(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        origin = self.writable_origin(parent)
        if origin is not None:
            self.check_name(name)
            key_of(self.store, parent, name)
            origin.require_certain(parent, name)
        return super().mkdir(parent, name, mode, caller)

    def symlink(self, parent: int, name: bytes, target: bytes, caller: Caller) -> Entry:
        """EPERM where files go to an origin: it has no symlinks."""
        if self.writable_origin(parent) is not None:
            raise CallError(errno.EPERM)
        return super().symlink(parent, name, target, caller)

    def mknod(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        """EPERM where files go to an origin: nothing would be closed that could upload it."""
        if self.writable_origin(parent) is not None:
            raise CallError(errno.EPERM)
        return super().mknod(parent, name, mode, caller)

    # --- attributes --------------------------------------------------------------------------------------------------

    def setattr(self, ino: int, changes: Changes, number: int | None, caller: Caller) -> Entry | Blocking[Entry]:
        """As AttributeChanges.setattr; of what isn't on the device after it was fetched. An origin keeps no attributes:
        they last as long as the file is on the device."""
        remote, origin = self._remote(ino), self.writable_origin(ino)
        if remote is None or origin is None or self.versions.get(ino) is not None:
            return super().setattr(ino, changes, number, caller)

        def change() -> Entry:
            pin = self._fetched(origin, remote)
            try:
                if changes.size is not None:
                    self._begin_version(remote, caller, empty=False)
                finish(AttributeChanges.setattr(self, pin.oid, changes, None, caller))
            finally:
                pin.release()
            return self._remote_entry(origin, remote)

        return Blocking(change, origin=True)

    def setxattr(self, ino: int, name: bytes, value: bytes, caller: Caller) -> None:
        super().setxattr(self._on_device(ino), name, value, caller)

    def removexattr(self, ino: int, name: bytes, caller: Caller) -> None:
        super().removexattr(self._on_device(ino), name, caller)

    def _on_device(self, ino: int) -> int:
        """The object that an inode stands for; ENOTSUP for one that only the origin has."""
        remote = self._remote(ino)
        if remote is None or self.writable_origin(ino) is None:
            return ino
        with self.lock, self.store.lock:
            oid = self._cached_oid(remote)
        if oid is None:
            raise CallError(errno.ENOTSUP)
        return oid

    # --- names that go -----------------------------------------------------------------------------------------------

    def unlink(self, parent: int, name: bytes, caller: Caller) -> Blocking[None] | None:
        """As Names.unlink; Blocking where the origin has the file, which is removed there first: EIO, and nothing
        removed, when that fails."""
        origin = self.writable_origin(parent)
        if origin is None:
            return super().unlink(parent, name, caller)
        self.check_name(name)
        with self.lock, self.store.lock:
            unsynced = self.uploads.at((parent, name))
            if unsynced is None and not self.goes_out(parent, name):
                return super().unlink(parent, name, caller)
            if unsynced is None:
                origin.require_certain(parent, name)
            oid = self.store.lookup(parent, name)
            known = origin.get(parent, name) is not None or self.uploads.is_busy((parent, name))
            sent = (unsynced is None and oid is not None) or (unsynced is not None and unsynced.record.base != ABSENT)
            if not known and not sent:
                self._unlink_here(parent, name, caller)
                return None
        return Blocking(lambda: self._unlink_at_origin(origin, parent, name, caller), origin=True)

    def _unlink_here(self, parent: int, name: bytes, caller: Caller) -> None:
        """Lock held."""
        with self.store.lock:
            super().unlink(parent, name, caller)
            if self.store.lookup(parent, name) is None:
                self.uploads.forget((parent, name))

    def _unlink_at_origin(self, origin: Origin, parent: int, name: bytes, caller: Caller) -> None:
        """Blocks."""
        uploader = origin.uploader
        assert uploader is not None
        with self.lock:
            key = key_of(self.store, parent, name)
        with self.uploads.hold((parent, name), halt=True):
            with self.uploads.doubted((parent, name)):
                self._delete(origin, uploader, key)
            with self.lock:
                assert self.origins is not None
                self.uploads.settled((parent, name))
                self.origins.changed(origin, (parent, name), None)
                here = self.store.lookup(parent, name) is not None
                if here or self.visible_version(parent, name, Identity(caller)) is not None:
                    self._unlink_here(parent, name, caller)
            # What a crash brought back here would be gone there.
            self.store.commit()

    def _delete(self, origin: Origin, uploader: OriginUploader, key: str) -> None:
        patience = Patience(self.uploads.stop, attempts=ATTEMPTS)
        try:
            patience.insist(lambda: uploader.delete(key))
        except OriginError as error:
            origin.counts.note_error(error)
            raise CallError(errno.EIO, str(error)) from None

    def rmdir(self, parent: int, name: bytes) -> None:
        """As Names.rmdir; ENOTEMPTY also for what only the origin has, EPERM for what a mark keeps there."""
        origin = self.writable_origin(parent)
        if origin is not None and origin.listing is not None:
            directory = self.store.lookup(parent, name)
            if directory is not None and origin.listing.names_in(directory):
                raise CallError(errno.ENOTEMPTY)
            if directory in origin.listing.marked:
                raise CallError(errno.EPERM)
        super().rmdir(parent, name)

    # --- names that change -------------------------------------------------------------------------------------------

    def rename(
        self, old_parent: int, old_name: bytes, parent: int, name: bytes, flags: int, caller: Caller
    ) -> Blocking[None] | None:
        """As Renaming.rename, for versions. EXDEV for what is published, directories included, so that mv copies and
        removes: an origin has no rename. With write-through, Blocking until the origin has the file under its new
        name; EIO, and nothing renamed, when it doesn't take it."""
        origin = self.writable_origin(old_parent)
        if origin is None or self.writable_origin(parent) is not origin:
            return super().rename(old_parent, old_name, parent, name, flags, caller)
        self.check_name(old_name)
        self.check_name(name)
        with self.lock:
            version = self.visible_version(old_parent, old_name, Identity(caller))
            there = origin.get(old_parent, old_name) if self.goes_out(old_parent, old_name) else None
            committed = self.store.lookup(old_parent, old_name)
            if version is None and committed is None and there is None:
                raise CallError(errno.ENOENT)
            if version is None or not version.modified or there is not None or (committed and not version.staging):
                raise CallError(errno.EXDEV)
            outgoing = self.goes_out(parent, name)
            if outgoing:
                key_of(self.store, parent, name)
                origin.require_certain(parent, name)
            if flags & NOREPLACE and outgoing and origin.get(parent, name) is not None:
                raise CallError(errno.EEXIST)
            waits = origin.writes_through and outgoing and not version.writers and not version.failed
            waits = waits and not self.at_origin(version, (parent, name))

        def renamed() -> Blocking[None] | None:
            return super(WrittenFiles, self).rename(old_parent, old_name, parent, name, flags, caller)

        if not waits:
            return renamed()
        return Blocking(lambda: self._send_and(origin, version, parent, name, renamed), origin=True)

    def _send_and(
        self, origin: Origin, version: Version, parent: int, name: bytes, publish: Callable[[], Blocking[None] | None]
    ) -> None:
        """Upload a version under a name, and publish it there. Blocks. EIO, and nothing done, when it isn't taken."""
        if not version.flushed:
            self.settle_version(version)
        with self.uploads.hold((parent, name), halt=True):
            try:
                self.send(origin, version, parent, name)
            except OriginError as error:
                raise CallError(errno.EIO, str(error)) from None
            self.cache.with_room(lambda: finish(publish()))

    def _rename_version(
        self, version: Version, new: tuple[int, bytes], target: Version | None, *, replace: bool
    ) -> None:
        former = version.key
        super()._rename_version(version, new, target, replace=replace)
        moved = version.fate is Fate.STAGED and version.key != former
        if moved and self.writable_origin(new[0]) is not None:
            mark(version.staged, SyncRecord(UNKNOWN))

    def link(self, ino: int, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        """EPERM where files go to an origin, which has no second names: with one that stays here, what becomes of the
        other at the origin would leave the file's state false."""
        origin = self.writable_origin(parent)
        if origin is None:
            return super().link(ino, parent, name, caller)
        version = self.versions.get(ino)
        if self.origin_of(ino if version is None else version.staged.namespace) is not origin:
            raise CallError(errno.EXDEV)
        raise CallError(errno.EPERM)

    # --- administrators ----------------------------------------------------------------------------------------------

    def forget_unsynced(self, namespace: int) -> None:
        """Files of a namespace were removed, whether its origin has them or not."""
        if self.origins is not None:
            with self.lock:
                self.uploads.forget_removed(namespace)

    def discard(self, origin: Origin, parent: int, name: bytes) -> bool:
        """Remove what only the device has under a name, and leave the origin as it is; whether there was any. Blocks
        while it is being uploaded."""
        with self.uploads.hold((parent, name), halt=True), self.lock, self.store.lock:
            if self.uploads.at((parent, name)) is None:
                return False
            self.store.unlink(parent, name)
            self.uploads.forget((parent, name))
            origin.outdated = True
        self.kernel.forget_name(parent, name)
        return True
