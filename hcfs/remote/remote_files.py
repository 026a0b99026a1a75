"""Files of an origin: there before they are on the device, and fetched by their first open."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from stat import S_IFREG
from typing import TypeVar

from hcfs.cache import ETAG
from hcfs.errors import HcfsError
from hcfs.filesystem.calls import Blocking, Caller, CallError, Entry, Opened, finish
from hcfs.filesystem.entries import Entries
from hcfs.filesystem.handles.table import Handles
from hcfs.filesystem.identity import CallerIdentity
from hcfs.filesystem.lock_files import is_lock_name
from hcfs.filesystem.operations.lookup import check_name, verifies_at_open
from hcfs.filesystem.operations.opening import Opening
from hcfs.filesystem.versions.version_names import VersionNames
from hcfs.filesystem.volume import Volume
from hcfs.origin import Access, OriginChanged
from hcfs.remote.fetching.ingest import Ingest
from hcfs.remote.fetching.stream_handle import StreamHandle
from hcfs.remote.fetching.streaming import Stream
from hcfs.remote.listing.relisting import holds
from hcfs.remote.listing.remote import Remote
from hcfs.remote.namespace_origin import REMOTE_MODE, Origin
from hcfs.remote.origins import Origins
from hcfs.store import Attributes, Kind, Pin

T = TypeVar("T")

OPEN_TRIES = 4
"""An object that is evicted, or found damaged, between its fetch and its open is fetched again."""

LISTED_ATTR_TIMEOUT = 1.0
"""Seconds. How many blocks a file has on the device changes without the kernel's doing."""


class RemoteFiles:
    """What both kinds of namespaces with an origin do with what the origin has."""

    def __init__(
        self,
        volume: Volume,
        origins: Origins,
        names: VersionNames,
        entries: Entries,
        opening: Opening,
        handles: Handles,
    ) -> None:
        self._names = names
        self._volume = volume
        self._store = volume.store
        self._lock = volume.lock
        self._origins = origins
        self._entries = entries
        self._opening = opening
        self._handles = handles

    def listed_first(self, origin: Origin, work: Callable[[], T | Blocking[T]]) -> Blocking[T]:
        """Do it when the origin was listed anew. EIO when it can't be listed."""

        def list_and_work() -> T:
            self._origins.list_now(origin)
            return finish(work())

        return Blocking(list_and_work, origin=True)

    def lookup(
        self,
        origin: Origin,
        parent: int,
        name: bytes,
        local: Callable[[], Entry],
        resolve: Callable[[], Entry | Blocking[Entry]],
    ) -> Entry | Blocking[Entry]:
        """What a name is, by the origin's latest listing. local: asks what it is on this device, for directories.
        resolve: asks once it is listed. Blocking while the origin must be listed; EIO when it can't be: no origin's
        error makes a name absent."""
        if name in (b".", b".."):
            return local()
        check_name(name)
        with self._store.atomically():  # else it may be evicted between the two
            oid = self._store.lookup(parent, name)
            kind = None if oid is None else self._store.attributes(oid).kind
        refused = bool(origin.refused(parent, name))
        if kind is Kind.DIRECTORY and not refused:
            return local()
        known = refused or origin.get(parent, name) is not None
        if origin.must_list(self._volume.clock(), known=known, cached=oid is not None):
            return self.listed_first(origin, resolve)
        return resolve()

    def look_up_listed(self, origin: Origin, parent: int, name: bytes, local: Callable[[], Entry]) -> Entry:
        """The same of an origin that is listed."""
        origin.require_certain(parent, name)
        remote = origin.get(parent, name)
        if remote is None:
            entry = local()
            return entry._replace(entry_timeout=0.0) if entry.attributes is None else entry
        self._volume.counts.lookups += 1
        oid = self.find_cached(remote)
        if oid is not None:
            self._volume.cache.looked_up(oid)
        return self.entry(origin, remote)

    def is_plain(self, parent: int, name: bytes, caller: Caller) -> bool:
        """Whether the name's answer needs no origin: a version that the caller sees, or what only the device has."""
        if is_lock_name(name):
            return True
        with self._lock:
            if self._names.visible(parent, name, CallerIdentity(caller)) is not None:
                return True
            with self._store.atomically():
                oid = self._store.lookup(parent, name)
                return oid is not None and self.is_here(oid)

    # --- attributes --------------------------------------------------------------------------------------------------

    def entry(self, origin: Origin, remote: Remote) -> Entry:
        """The answer that names a file of an origin."""
        timeout = self._entries.entry_timeout
        if origin.revalidate is not None:
            timeout = min(timeout, origin.revalidate)
        return Entry(remote.ino, self.attributes(remote), timeout, min(timeout, LISTED_ATTR_TIMEOUT))

    def entry_of_inode(self, ino: int) -> Entry | None:
        """The answer that names an inode; None where it isn't known as a file of an origin's."""
        remote = self._origins.remote(ino)
        origin = None if remote is None else self._origins.of(remote.namespace)
        return None if remote is None or origin is None else self.entry(origin, remote)

    def listed_entry(self, origin: Origin, remote: Remote) -> Entry:
        """The same in a listing of its directory."""
        entry = self.entry(origin, remote)
        return entry._replace(entry_timeout=min(entry.entry_timeout, LISTED_ATTR_TIMEOUT))

    def cached_oid(self, remote: Remote) -> int | None:
        """The committed object that has this content; None when it isn't on the device. Both locks are held, here and
        by all who go on with what is answered: evictions take the store's alone."""
        try:
            oid = self._store.lookup(remote.parent, remote.name)
        except HcfsError:
            return None  # its directory is gone
        return oid if oid is not None and holds(self._volume, oid, remote) else None

    def find_cached(self, remote: Remote) -> int | None:
        """The same of this moment: it may be evicted as soon as this returns."""
        with self._lock, self._store.atomically():
            return self.cached_oid(remote)

    def attributes(self, remote: Remote) -> Attributes:
        """Of what is on the device, else as it is listed."""
        with self._lock, self._store.atomically():
            oid = self.cached_oid(remote)
            if oid is not None:
                return self._store.attributes(oid)._replace(id=remote.ino)
            owner = self._store.attributes(remote.namespace)
        origin, listed = self._origins.of(remote.namespace), remote.listed
        current = origin is not None and origin.is_current(remote)
        access = Access(REMOTE_MODE, owner.uid, owner.gid) if origin is None else origin.shown(listed, owner)
        return Attributes(
            id=remote.ino,
            kind=Kind.FILE,
            mode=S_IFREG | access.mode,
            uid=access.uid,
            gid=access.gid,
            nlink=1 if current else 0,
            size=listed.size,
            blocks=0,
            atime_ns=listed.mtime_ns,
            mtime_ns=listed.mtime_ns,
            ctime_ns=listed.mtime_ns,
            generation=0,
            last_access_ns=0,
            state="committed",
        )

    # --- opening -----------------------------------------------------------------------------------------------------

    def open_to_read(self, origin: Origin, ino: int, flags: int, caller: Caller) -> Opened | Blocking[Opened]:
        """Open a file of the origin's. Blocking until the object is on the device, whole, or where the namespace
        streams until the origin has answered. The fetch has begun when this returns, so that no other one waits for the
        thread that waits for it. EIO when the origin fails."""
        remote = self._origins.remote(ino)
        if origin.must_list(self._volume.clock(), known=remote is not None, cached=remote is None):
            return self.listed_first(origin, lambda: self._open_listed(origin, remote, ino, flags, caller))
        return self._open_listed(origin, remote, ino, flags, caller)

    def _open_listed(
        self, origin: Origin, remote: Remote | None, ino: int, flags: int, caller: Caller
    ) -> Opened | Blocking[Opened]:
        if remote is None:
            return self._opening.open(ino, flags, caller)
        self._volume.counts.opens += 1
        with self._lock, self._store.atomically():
            found = self.pin_or_begin(origin, remote)
        if isinstance(found, Pin):
            self._volume.cache.used(found.oid)
            if not verifies_at_open(self._volume, found.oid):
                return self._open_pinned(found, remote)
            found.release()
        elif origin.streams(remote):
            opened = self._open_stream(found.stream, remote, flags)
            if opened is not None:
                return opened
        return Blocking(lambda: self._open_when_fetched(origin, remote, flags), origin=True)

    def _open_pinned(self, pin: Pin, remote: Remote) -> Opened:
        """Blocks where it is verified first. The handle keeps what the object was listed as for the kernel's questions,
        whatever is listed by now."""
        verify = verifies_at_open(self._volume, pin.oid)
        return finish(self._opening.open_pinned(pin, verify=verify, keeps=remote))

    def _open_stream(self, stream: Stream | None, remote: Remote, flags: int) -> Opened | None:
        """Open what is on its way; None when it isn't any more, or isn't this inode's."""
        if stream is None or stream.remote is not remote or not stream.open():
            return None
        return Opened(self._handles.add(StreamHandle(stream, direct=bool(flags & os.O_DIRECT))))

    def pin_or_begin(self, origin: Origin, remote: Remote) -> Pin | Ingest:
        """The object, when it is on the device; else its fetch. ESTALE when the name leads to other content by now:
        the kernel looks again. Both locks held."""
        of_namespace = self._volume.cache.namespaces.options(remote.namespace).origin  # it may have changed meanwhile
        if not origin.is_current(remote) or of_namespace != origin.options.origin or self.written_over(origin, remote):
            raise CallError(errno.ESTALE)
        oid = self.cached_oid(remote)
        return self._store.pin(oid) if oid is not None else self._origins.ingests.begin(origin, remote)

    def written_over(self, origin: Origin, remote: Remote) -> bool:
        """Whether a file that only the device has is under the name now. Lock held."""
        if origin.uploader is None:
            return False
        oid = self._store.lookup(remote.parent, remote.name)
        return oid is not None and self.is_here(oid)

    def is_here(self, oid: int) -> bool:
        """Whether a committed object of a namespace with an origin is a file that the origin doesn't have: dirty, or
        never to go there."""
        try:
            with self._store.atomically():
                return self._store.attributes(oid).kind is Kind.FILE and self._store.get_xattr(oid, ETAG) is None
        except HcfsError:
            return False

    def _open_when_fetched(self, origin: Origin, remote: Remote, flags: int) -> Opened:
        """Blocks."""
        for _ in range(OPEN_TRIES):
            with self._lock, self._store.atomically():
                found = self.pin_or_begin(origin, remote)
            if isinstance(found, Ingest):
                try:
                    if origin.streams(remote):
                        opened = self._open_stream(found.wait_for_stream(), remote, flags)
                        if opened is not None:
                            return opened
                    else:
                        found.wait()
                except OriginChanged:
                    self._origins.list_now(origin)
                continue
            self._volume.cache.used(found.oid)
            try:
                return self._open_pinned(found, remote)
            except CallError:
                continue  # quarantined: the origin has a good one
        raise CallError(errno.EIO)

    def fetched(self, origin: Origin, remote: Remote) -> Pin:
        """What the origin has, once it is on the device. Blocks. EIO, or ESTALE where it has other content by now."""
        for _ in range(OPEN_TRIES):
            with self._lock, self._store.atomically():
                found = self.pin_or_begin(origin, remote)
            if not isinstance(found, Ingest):
                return found
            try:
                found.wait()
            except OriginChanged:
                self._origins.list_now(origin)
        raise CallError(errno.EIO)
