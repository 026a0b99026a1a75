"""Files of namespaces with an origin: read-only, there before they are on the device, fetched by their first open.

What such a name is comes from the origin's listing. Where that is too old, or there is none yet, LOOKUP, OPEN and
READDIR are Blocking. With the data plane the kernel then holds a directory only against changes while a lookup in it
waits, and nothing is changed in these directories but by hcfs itself. With pyfuse3 alone, lookups of that one directory
wait too."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from stat import S_IFREG
from typing import TypeVar

from hcfs.cache import ETAG
from hcfs.errors import HcfsError
from hcfs.mount.answers import Blocking, Caller, CallError, Entry, Opened, finish
from hcfs.mount.handles import NameListing, StreamHandle
from hcfs.mount.ingest import Ingest
from hcfs.mount.namespace_origin import REMOTE_MODE, Origin
from hcfs.mount.object_handle import ObjectHandle
from hcfs.mount.origin_listing import holds
from hcfs.mount.origin_names import OriginNames
from hcfs.mount.remote import Remote
from hcfs.mount.streaming import Stream
from hcfs.mount.xattrs import OWN, USER
from hcfs.origin import Access, OriginChanged
from hcfs.store import ROOT_ID, Attributes, Kind, Pin

T = TypeVar("T")

OPEN_TRIES = 4
"""An object that is evicted, or found damaged, between its fetch and its open is fetched again."""


class RemoteHandle(ObjectHandle):
    """An object of an origin. What it was listed as is kept for the kernel's questions, whatever is listed by now."""

    __slots__ = ("_remote",)

    def __init__(self, pin: Pin, remote: Remote) -> None:
        super().__init__(pin)
        self._remote = remote


class RemoteFiles(OriginNames):
    """Between the other operations and the virtual tree. Without an origin anywhere, each call costs one look at a
    name."""

    def _listed_first(self, origin: Origin, work: Callable[[], T | Blocking[T]]) -> Blocking[T]:
        origins = self.origins
        assert origins is not None

        def list_and_work() -> T:
            origins.list_now(origin)
            return finish(work())

        return Blocking(list_and_work, origin=True)

    # --- names -------------------------------------------------------------------------------------------------------

    def lookup(self, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        """As Lookup.lookup. Blocking while the origin must be listed; EIO when it can't be: no origin's error makes a
        name absent."""
        origin = self.origin_of(parent) if parent != ROOT_ID else None
        if origin is None or name in (b".", b".."):
            return super().lookup(parent, name, caller)
        self.check_name(name)
        with self.store.lock:  # else it may be evicted between the two
            oid = self.store.lookup(parent, name)
            kind = None if oid is None else self.store.attributes(oid).kind
        refused = bool(origin.refused(parent, name))
        if kind is Kind.DIRECTORY and not refused:
            return super().lookup(parent, name, caller)
        known = refused or origin.get(parent, name) is not None
        if origin.must_list(self.clock(), known=known, cached=oid is not None):
            return self._listed_first(origin, lambda: self._look_up_listed(origin, parent, name, caller))
        return self._look_up_listed(origin, parent, name, caller)

    def _look_up_listed(self, origin: Origin, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        origin.require_certain(parent, name)
        remote = origin.get(parent, name)
        if remote is None:
            entry = super().lookup(parent, name, caller)
            assert isinstance(entry, Entry)
            return entry._replace(entry_timeout=0.0) if entry.attributes is None else entry
        self.calls.lookups += 1
        with self.lock, self.store.lock:
            oid = self._cached_oid(remote)
        if oid is not None:
            self.cache.looked_up(oid)
        return self._remote_entry(origin, remote)

    def _remote_entry(self, origin: Origin, remote: Remote) -> Entry:
        timeout = self.entry_timeout if origin.revalidate is None else min(self.entry_timeout, origin.revalidate)
        # How many blocks it has on the device changes without the kernel's doing.
        return Entry(remote.ino, self._remote_attributes(remote), timeout, min(timeout, 1.0))

    def _cached_oid(self, remote: Remote) -> int | None:
        """The committed object that has this content; None when it isn't on the device. Both locks are
        held, here and by all who go on with what is answered: evictions take the store's alone."""
        try:
            oid = self.store.lookup(remote.parent, remote.name)
        except HcfsError:
            return None  # its directory is gone
        return oid if oid is not None and holds(self, oid, remote) else None

    def _remote_attributes(self, remote: Remote) -> Attributes:
        with self.lock, self.store.lock:
            oid = self._cached_oid(remote)
            if oid is not None:
                return self.store.attributes(oid)._replace(id=remote.ino)
            owner = self.store.attributes(remote.namespace)
        origin, listed = self.origin_of(remote.ino), remote.listed
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

    def getattr(self, ino: int) -> Entry:
        remote = self._remote(ino)
        origin = None if remote is None else self.origin_of(ino)
        if remote is None or origin is None:
            return super().getattr(ino)
        return self._remote_entry(origin, remote)

    # --- opening -----------------------------------------------------------------------------------------------------

    def open(self, ino: int, flags: int, caller: Caller) -> Opened | Blocking[Opened]:
        """As Opening.open; Blocking until the object is on the device, whole, or where the namespace streams until the
        origin has answered. The fetch has begun when this returns, so that no other one waits for the thread that waits
        for it. EROFS for writers, EIO when the origin fails."""
        origin = self.origin_of(ino)
        if origin is None:
            return super().open(ino, flags, caller)
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            raise CallError(errno.EROFS)
        remote = self._remote(ino)
        if origin.must_list(self.clock(), known=remote is not None, cached=remote is None):
            return self._listed_first(origin, lambda: self._open_listed(origin, remote, ino, flags, caller))
        return self._open_listed(origin, remote, ino, flags, caller)

    def _open_listed(
        self, origin: Origin, remote: Remote | None, ino: int, flags: int, caller: Caller
    ) -> Opened | Blocking[Opened]:
        if remote is None:
            return super().open(ino, flags, caller)
        self.calls.opens += 1
        with self.lock, self.store.lock:
            found = self._pin_or_begin(origin, remote)
        if isinstance(found, Pin):
            self.cache.used(found.oid)
            if not self.verifies_at_open(found.oid):
                return Opened(self.handles.add(RemoteHandle(found, remote)))
            found.release()
        elif origin.streams(remote):
            opened = self._open_stream(found.stream, remote, flags)
            if opened is not None:
                return opened
        return Blocking(lambda: self._open_remote(origin, remote, flags), origin=True)

    def _open_stream(self, stream: Stream | None, remote: Remote, flags: int) -> Opened | None:
        """Open what is on its way; None when it isn't any more, or isn't this inode's."""
        if stream is None or stream.remote is not remote or not stream.open():
            return None
        return Opened(self.handles.add(StreamHandle(stream, bool(flags & os.O_DIRECT))))

    def _pin_or_begin(self, origin: Origin, remote: Remote) -> Pin | Ingest:
        """The object, when it is on the device; else its fetch. ESTALE when the origin has other content there by now:
        the kernel looks again. Both locks held."""
        assert self.origins is not None
        of_namespace = self.cache.namespaces.options(remote.namespace).origin  # which may have changed meanwhile
        if not origin.is_current(remote) or of_namespace != origin.options.origin:
            raise CallError(errno.ESTALE)
        oid = self._cached_oid(remote)
        return self.store.pin(oid) if oid is not None else self.origins.ingests.begin(origin, remote)

    def _open_remote(self, origin: Origin, remote: Remote, flags: int) -> Opened:
        """Blocks."""
        assert self.origins is not None
        for _ in range(OPEN_TRIES):
            with self.lock, self.store.lock:
                found = self._pin_or_begin(origin, remote)
            if isinstance(found, Ingest):
                try:
                    if origin.streams(remote):
                        opened = self._open_stream(found.wait_for_stream(), remote, flags)
                        if opened is not None:
                            return opened
                    else:
                        found.wait()
                except OriginChanged:
                    self.origins.list_now(origin)
                continue
            self.cache.used(found.oid)
            handle = RemoteHandle(found, remote)
            if not self.verifies_at_open(found.oid):
                return Opened(self.handles.add(handle))
            try:
                return self._open_verified(handle)
            except CallError:
                continue  # quarantined: the origin has a good one
        raise CallError(errno.EIO)

    def quarantine(self, oid: int, generation: int, reason: str) -> None:
        """As Damage.quarantine; the kernel's pages are those of the inode that the file is known by."""
        names = self.store.names_of(oid) if self.origins else []
        origin = self.origin_of(names[0][0]) if names else None
        remote = None if origin is None else origin.get(*names[0])
        super().quarantine(oid, generation, reason)
        if remote is not None and remote.ino != oid:
            self.kernel.forget_pages(remote.ino)

    # --- listing -----------------------------------------------------------------------------------------------------

    def begin_listing(self, number: int) -> Blocking[None] | None:
        """As Listing.begin_listing; Blocking while the origin must be listed, EIO when it can't be."""
        origin = self.origin_of(self.handles.directory(number).ino)
        if origin is None or not origin.must_list(self.clock(), known=False, cached=False):
            return None
        return self._listed_first(origin, lambda: None)

    def names_in(self, directory: int) -> NameListing:
        origin = self.origin_of(directory)
        names = super().names_in(directory)
        if origin is None or origin.listing is None:
            return names
        return MergedListing(names, origin.listing.names_in(directory))

    def _led_to(self, directory: int, name: bytes, ino: int) -> Entry | None:
        origin = self.origin_of(directory)
        if origin is not None and origin.refused(directory, name):
            return None
        remote = None if origin is None else origin.get(directory, name)
        if origin is None or remote is None:
            return super()._led_to(directory, name, ino)
        entry = self._remote_entry(origin, remote)
        return entry._replace(entry_timeout=min(entry.entry_timeout, 1.0))

    # --- attributes of hcfs's own ------------------------------------------------------------------------------------

    def getxattr(self, ino: int, name: bytes) -> bytes | Blocking[bytes]:
        remote = self._remote(ino)
        if remote is None:
            return super().getxattr(ino, name)
        if not name.startswith(USER):
            raise CallError(errno.ENODATA)
        with self.lock, self.store.lock:
            oid = self._cached_oid(remote)
        if oid is not None:
            return super().getxattr(oid, name)
        value = self._remote_facts(remote).get(name)
        if value is None:
            raise CallError(errno.ENODATA)
        return value

    def listxattr(self, ino: int) -> list[bytes]:
        remote = self._remote(ino)
        if remote is None:
            return super().listxattr(ino)
        with self.lock, self.store.lock:
            oid = self._cached_oid(remote)
        return list(self._remote_facts(remote)) if oid is None else super().listxattr(oid)

    def _remote_facts(self, remote: Remote) -> dict[bytes, bytes]:
        """Of what isn't on the device."""
        return {
            OWN + b"state": b"remote",
            OWN + b"namespace": self._namespace_name(remote.namespace),
            OWN + b"origin": self._origin_url(remote.namespace, remote.listed.key.encode(errors="surrogateescape")),
        }

    def _state(self, attributes: Attributes) -> bytes:
        state = super()._state(attributes)
        namespace = self.store.namespace_of(attributes.id)
        local = not namespace or self.cache.namespaces.options(namespace).origin is None
        return state if local or state != b"local-only" else b"clean"

    def _origin(self, attributes: Attributes) -> bytes:
        namespace = self.store.namespace_of(attributes.id)
        if self.store.get_xattr(attributes.id, ETAG) is None:
            return super()._origin(attributes)
        return self._origin_url(namespace, self.store.path_of(attributes.id).partition(b"/")[2])

    def _origin_url(self, namespace: int, key: bytes) -> bytes:
        url = self.cache.namespaces.options(namespace).origin
        return b"none" if url is None else os.fsencode(url.rstrip("/")) + b"/" + key


class MergedListing:
    """Names of a directory in the store, then those that are only at the origin."""

    def __init__(self, stored: NameListing, remote: list[bytes]) -> None:
        self._stored = stored
        self._remote = remote
        self._seen: set[bytes] = set()

    def more(self) -> list[bytes]:
        """The next names; none at the end. Memory only."""
        names = self._stored.more()
        if names:
            self._seen.update(names)
            return names
        rest = [name for name in self._remote if name not in self._seen]
        self._remote = []
        return rest
