"""The place of namespaces whose files are stored here and go to an origin.

A name leads to what was written here as long as the origin doesn't have it, else to what the origin has. What removes a
name waits for the origin, so nothing has to be remembered of what is gone."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from hcfs.cache import ABSENT
from hcfs.errors import HcfsError
from hcfs.filesystem.calls import Blocking, Caller, CallError, Created, Entry, Opened, finish
from hcfs.filesystem.identity import CallerIdentity
from hcfs.filesystem.modes import writes
from hcfs.filesystem.operations.attribute_changes import Changes
from hcfs.filesystem.operations.listing import DirectoryListing
from hcfs.filesystem.operations.lookup import Lookup, check_name
from hcfs.filesystem.operations.renaming import NOREPLACE
from hcfs.filesystem.places.local_namespace import LocalNamespace
from hcfs.filesystem.versions.drafting import Drafting
from hcfs.filesystem.versions.estale_retries import EstaleRetries
from hcfs.filesystem.versions.publisher import Publisher
from hcfs.filesystem.versions.version import Version, Versions
from hcfs.filesystem.versions.version_names import VersionNames
from hcfs.filesystem.volume import Volume
from hcfs.origin import OriginError, OriginUploader, Patience
from hcfs.remote.listing.remote import Remote
from hcfs.remote.namespace_origin import Origin
from hcfs.remote.origins import Origins
from hcfs.remote.remote_files import RemoteFiles
from hcfs.remote.remote_listing import RemoteLister
from hcfs.remote.remote_xattrs import RemoteXattrs
from hcfs.remote.syncing.sync_names import SyncNames
from hcfs.remote.syncing.write_through import ATTEMPTS, WriteThrough
from hcfs.remote.uploading.upload_source import key_of


class SyncedNamespace:
    """A Place."""

    def __init__(
        self,
        volume: Volume,
        local: LocalNamespace,
        lookup: Lookup,
        listing: DirectoryListing,
        versions: Versions,
        version_names: VersionNames,
        retries: EstaleRetries,
        drafting: Drafting,
        publisher: Publisher,
        origins: Origins,
        files: RemoteFiles,
        lister: RemoteLister,
        xattrs: RemoteXattrs,
        names: SyncNames,
        write_through: WriteThrough,
    ) -> None:
        self._volume = volume
        self._store = volume.store
        self._lock = volume.lock
        self._local = local
        self._lookup = lookup
        self._listing = listing
        self._versions = versions
        self._version_names = version_names
        self._retries = retries
        self._drafting = drafting
        self._publisher = publisher
        self._origins = origins
        self._uploads = origins.uploads
        self._files = files
        self._lister = lister
        self._xattrs = xattrs
        self._names = names
        self._write_through = write_through

    # --- what a name leads to ----------------------------------------------------------------------------------------

    def lookup(self, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        origin = self._names.writable_origin(parent)
        if origin is None:  # it has changed since the place was chosen
            return self._local.lookup(parent, name, caller)

        def local() -> Entry:
            return self._local.lookup(parent, name, caller)

        def resolve() -> Entry:
            if self._files.is_plain(parent, name, caller):
                return local()
            entry = self._files.look_up_listed(origin, parent, name, local)
            with self._lock:
                fleeting = bool(self._versions.of_name(parent, name))
                self._keep_for_reading(entry, caller)
            return entry._replace(entry_timeout=0.0, attr_timeout=0.0) if fleeting else entry

        check_name(name)
        if name not in (b".", b"..") and self._files.is_plain(parent, name, caller):
            return local()
        return self._files.lookup(origin, parent, name, local, resolve)

    def _keep_for_reading(self, entry: Entry, caller: Caller) -> None:
        """The second lookup of a walk whose open was answered with ESTALE: what it names can be opened, even if
        somebody replaces it before. Lock held."""
        retry = self._retries.of(caller.thread)
        if retry is not None and not retry.writes and entry.attributes is not None:
            with suppress(HcfsError):  # only the origin has it
                self._lookup.keep_pinned(retry, entry.ino)

    def getattr(self, ino: int) -> Entry:
        return self._files.entry_of_inode(ino) or self._local.getattr(ino)

    def readlink(self, ino: int) -> bytes:
        return self._local.readlink(ino)

    def opendir(self, ino: int, caller: Caller) -> Opened:
        return self._listing.opendir(ino, caller, self._lister)

    # --- opening -----------------------------------------------------------------------------------------------------

    def open(self, ino: int, flags: int, caller: Caller) -> Opened | Blocking[Opened]:
        """A writer of what the origin has gets a version of it, by way of ESTALE: an empty one where the content is
        cut, else after it was fetched."""
        origin = self._names.writable_origin(ino)
        if origin is None or self._files.is_here(ino):
            return self._local.open(ino, flags, caller)
        if not writes(flags):
            return self._open_to_read(origin, ino, flags, caller)
        remote = self._origins.remote(ino)
        if remote is None:
            return self._local.open(ino, flags, caller)
        empty = bool(flags & os.O_TRUNC)
        self._volume.counts.opens += 1
        with self._lock, self._store.atomically():
            here = self._files.cached_oid(remote) is not None or self._files.written_over(origin, remote)
        if empty or here:
            return self._begin_version(remote, caller, empty=empty)
        return Blocking(lambda: self._fetch_for_writing(origin, remote, caller), origin=True)

    def _open_to_read(self, origin: Origin, ino: int, flags: int, caller: Caller) -> Opened | Blocking[Opened]:
        with self._read_again(caller):
            answer = self._files.open_to_read(origin, ino, flags, caller)
        if not isinstance(answer, Blocking):
            self._was_opened(caller)
            return answer
        return Blocking(lambda: self._finish_open(answer, caller), origin=answer.origin)

    @contextmanager
    def _read_again(self, caller: Caller) -> Iterator[None]:
        """An open for reading that the kernel repeats when it is answered with ESTALE. Lock not held."""
        try:
            yield
        except CallError as error:
            with self._lock:
                self._retries.refused(error, caller.thread, writes=False)
            raise

    def _finish_open(self, answer: Blocking[Opened], caller: Caller) -> Opened:
        with self._read_again(caller):
            opened = answer.run()
        self._was_opened(caller)
        return opened

    def _was_opened(self, caller: Caller) -> None:
        if self._retries:
            with self._lock:
                self._retries.end(caller.thread)

    def _begin_version(self, remote: Remote, caller: Caller, *, empty: bool) -> NoReturn:
        """Make the caller's version of a name that the origin has, and answer ESTALE."""
        parent, name = remote.parent, remote.name
        who = CallerIdentity(caller)
        with self._lock:
            try:
                if self._version_names.own(parent, name, who) is None:
                    if self._store.lookup(parent, name) is not None:
                        self._drafting.of_name(parent, name, who)
                    elif empty:
                        like = self._files.attributes(remote)
                        self._drafting.begin_empty(who, parent, name, like.mode, like.uid, like.gid)
                raise CallError(errno.ESTALE)
            except HcfsError as error:
                self._retries.refused(error, caller.thread, writes=True)
                raise

    def _fetch_for_writing(self, origin: Origin, remote: Remote, caller: Caller) -> NoReturn:
        """Blocks."""
        pin = self._files.fetched(origin, remote)
        try:
            self._begin_version(remote, caller, empty=False)
        finally:
            pin.release()

    # --- names that come ---------------------------------------------------------------------------------------------

    def create(self, parent: int, name: bytes, mode: int, flags: int, caller: Caller) -> Created:
        """EILSEQ and EINVAL for a name that can't be a key."""
        origin = self._names.writable_origin(parent)
        if origin is not None and self._names.goes_out(parent, name):
            check_name(name)
            key_of(self._store, parent, name)
            origin.require_certain(parent, name)
            if flags & os.O_EXCL and origin.get(parent, name) is not None:
                raise CallError(errno.EEXIST)
        return self._local.create(parent, name, mode, flags, caller)

    def mkdir(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        """The same."""
        check_name(name)
        key_of(self._store, parent, name)
        origin = self._names.writable_origin(parent)
        if origin is not None:
            origin.require_certain(parent, name)
        return self._local.mkdir(parent, name, mode, caller)

    def symlink(self, parent: int, name: bytes, target: bytes, caller: Caller) -> NoReturn:
        """EPERM where files go to an origin: it has no symlinks."""
        raise CallError(errno.EPERM)

    def mknod(self, parent: int, name: bytes, mode: int, caller: Caller) -> NoReturn:
        """EPERM where files go to an origin: nothing would be closed that could upload it."""
        raise CallError(errno.EPERM)

    # --- attributes --------------------------------------------------------------------------------------------------

    def setattr(self, ino: int, changes: Changes, number: int | None, caller: Caller) -> Entry | Blocking[Entry]:
        """Of what isn't on the device after it was fetched. An origin keeps no attributes: they last as long as the
        file is on the device."""
        remote, origin = self._origins.remote(ino), self._names.writable_origin(ino)
        if remote is None or origin is None or self._versions.get(ino) is not None:
            return self._local.setattr(ino, changes, number, caller)

        def change() -> Entry:
            pin = self._files.fetched(origin, remote)
            try:
                if changes.size is not None:
                    self._begin_version(remote, caller, empty=False)
                finish(self._local.setattr(pin.oid, changes, None, caller))
            finally:
                pin.release()
            return self._files.entry(origin, remote)

        return Blocking(change, origin=True)

    def getxattr(self, ino: int, name: bytes) -> bytes | Blocking[bytes]:
        return self._xattrs.getxattr(ino, name)

    def listxattr(self, ino: int) -> list[bytes]:
        return self._xattrs.listxattr(ino)

    def setxattr(self, ino: int, name: bytes, value: bytes, caller: Caller) -> None:
        self._local.setxattr(self._on_device(ino), name, value, caller)

    def removexattr(self, ino: int, name: bytes, caller: Caller) -> None:
        self._local.removexattr(self._on_device(ino), name, caller)

    def _on_device(self, ino: int) -> int:
        """The object that an inode stands for; ENOTSUP for one that only the origin has."""
        remote = self._origins.remote(ino)
        if remote is None:
            return ino
        oid = self._files.find_cached(remote)
        if oid is None:
            raise CallError(errno.ENOTSUP)
        return oid

    # --- names that go -----------------------------------------------------------------------------------------------

    def unlink(self, parent: int, name: bytes, caller: Caller) -> Blocking[None] | None:
        """Blocking where the origin has the file, which is removed there first: EIO, and nothing removed, when that
        fails."""
        origin = self._names.writable_origin(parent)
        if origin is None:
            self._local.unlink(parent, name, caller)
            return None
        check_name(name)
        with self._lock, self._store.atomically():
            unsynced = self._uploads.at((parent, name))
            if unsynced is None and not self._names.goes_out(parent, name):
                self._local.unlink(parent, name, caller)
                return None
            if unsynced is None:
                origin.require_certain(parent, name)
            oid = self._store.lookup(parent, name)
            known = origin.get(parent, name) is not None or self._uploads.is_busy((parent, name))
            sent = (unsynced is None and oid is not None) or (unsynced is not None and unsynced.record.base != ABSENT)
            if not known and not sent:
                self._unlink_here(parent, name, caller)
                return None
        return Blocking(lambda: self._unlink_at_origin(origin, parent, name, caller), origin=True)

    def _unlink_here(self, parent: int, name: bytes, caller: Caller) -> None:
        """Lock held."""
        with self._store.atomically():
            self._local.unlink(parent, name, caller)
            if self._store.lookup(parent, name) is None:
                self._uploads.forget((parent, name))

    def _unlink_at_origin(self, origin: Origin, parent: int, name: bytes, caller: Caller) -> None:
        """Blocks."""
        uploader, uploads = origin.uploader, self._uploads
        assert uploader is not None
        with self._lock:
            key = key_of(self._store, parent, name)
        with uploads.hold((parent, name), halt=True):
            with uploads.doubted((parent, name)):
                self._delete(origin, uploader, key)
            with self._lock:
                uploads.settled((parent, name))
                self._origins.changed(origin, (parent, name), None)
                here = self._store.lookup(parent, name) is not None
                if here or self._version_names.visible(parent, name, CallerIdentity(caller)) is not None:
                    self._unlink_here(parent, name, caller)
            # What a crash brought back here would be gone there.
            self._store.commit()

    def _delete(self, origin: Origin, uploader: OriginUploader, key: str) -> None:
        patience = Patience(self._uploads.stop, attempts=ATTEMPTS)
        try:
            patience.insist(lambda: uploader.delete(key))
        except OriginError as error:
            origin.counts.note_error(error)
            raise CallError(errno.EIO, str(error)) from None

    def rmdir(self, parent: int, name: bytes) -> None:
        """ENOTEMPTY also for what only the origin has, EPERM for what a mark keeps there."""
        origin = self._names.writable_origin(parent)
        if origin is not None and origin.listing is not None:
            directory = self._store.lookup(parent, name)
            if directory is not None and origin.listing.names_in(directory):
                raise CallError(errno.ENOTEMPTY)
            if directory in origin.listing.marked:
                raise CallError(errno.EPERM)
        self._local.rmdir(parent, name)

    # --- names that change -------------------------------------------------------------------------------------------

    def rename(
        self, old_parent: int, old_name: bytes, parent: int, name: bytes, flags: int, caller: Caller
    ) -> Blocking[None] | None:
        """Of versions. EXDEV for what is published, directories included, so that mv copies and removes: an origin has
        no rename. With write-through, Blocking until the origin has the file under its new name; EIO, and nothing
        renamed, when it doesn't take it."""
        self._origins.refuse_elsewhere(old_parent, parent)
        origin = self._names.writable_origin(old_parent)
        if origin is None:
            return self._local.rename(old_parent, old_name, parent, name, flags, caller)
        check_name(old_name)
        check_name(name)
        with self._lock:
            version = self._version_names.visible(old_parent, old_name, CallerIdentity(caller))
            there = origin.get(old_parent, old_name) if self._names.goes_out(old_parent, old_name) else None
            committed = self._store.lookup(old_parent, old_name)
            if version is None and committed is None and there is None:
                raise CallError(errno.ENOENT)
            if version is None or not version.modified or there is not None or (committed and not version.staging):
                raise CallError(errno.EXDEV)
            outgoing = self._names.goes_out(parent, name)
            if outgoing:
                key_of(self._store, parent, name)
                origin.require_certain(parent, name)
            if flags & NOREPLACE and outgoing and origin.get(parent, name) is not None:
                raise CallError(errno.EEXIST)
            waits = origin.writes_through and outgoing and not version.writers and not version.failed
            waits = waits and not version.is_uploaded_as(parent, name)

        def renamed() -> Blocking[None] | None:
            return self._local.rename(old_parent, old_name, parent, name, flags, caller)

        if not waits:
            return renamed()
        return Blocking(lambda: self._send_and(origin, version, parent, name, renamed), origin=True)

    def _send_and(
        self, origin: Origin, version: Version, parent: int, name: bytes, publish: Callable[[], Blocking[None] | None]
    ) -> None:
        """Upload a version under a name, and publish it there. Blocks. EIO, and nothing done, when it isn't taken."""
        if not version.flushed:
            self._publisher.settle(version)
        with self._uploads.hold((parent, name), halt=True):
            try:
                self._write_through.send(origin, version, parent, name)
            except OriginError as error:
                raise CallError(errno.EIO, str(error)) from None
            self._volume.cache.with_room(lambda: finish(publish()))

    def link(self, ino: int, parent: int, name: bytes, caller: Caller) -> NoReturn:
        """EPERM where files go to an origin, which has no second names: with one that stays here, what becomes of the
        other at the origin would leave the file's state false."""
        version = self._versions.get(ino)
        self._origins.refuse_elsewhere(ino if version is None else version.staged.namespace, parent)
        raise CallError(errno.EPERM)
