"""Listing an origin, and bringing a namespace in line with it: its directories, and what the device holds."""

from __future__ import annotations

import logging

from hcfs.cache import ETAG
from hcfs.filesystem.versions.version import Versions
from hcfs.filesystem.volume import Volume
from hcfs.origin import Access, Listed, OriginError, OriginRefused, Patience
from hcfs.remote.listing.origin_access import follow_directory, follow_file
from hcfs.remote.listing.origin_found import Found
from hcfs.remote.listing.remote import Remote, RemoteListing
from hcfs.remote.namespace_origin import Origin, OriginRegistry
from hcfs.store import Kind
from hcfs.store.errors import NoSuchObject, StoreError

log = logging.getLogger(__name__)

OBJECTS_MAX = 200_000
"""Objects that a mount knows of one origin: some 500 bytes each are in its memory."""

ATTEMPTS = 3


class Relisting:
    """One listing. Called in a thread that may wait, no lock held."""

    def __init__(self, core: Volume, versions: Versions, origins: OriginRegistry, origin: Origin) -> None:
        self._core = core
        self._versions = versions
        self._origins = origins
        self._origin = origin
        self._directories: dict[tuple[bytes, ...], int | None] = {(): origin.namespace}
        self._found = Found()

    def run(self) -> None:
        """Replace what is known of the origin. OriginError, and nothing changed, when it can't be listed."""
        core, origin = self._core, self._origin
        began = core.clock()
        former = origin.listing
        found = self._found = self._ask()
        remotes, refused = [], {}
        for parts, listed in found.files.items():
            parent = self._directory(parts[:-1])
            if parent is not None:
                remotes.append(self._remote(parent, parts[-1], listed))
        for parts, reason in found.refused.items():
            parent = self._directory(parts[:-1])
            if parent is not None:
                refused[parent, parts[-1]] = reason
        marked = {oid for parts in found.marks if (oid := self._directory(parts)) is not None}
        ids = {oid for oid in self._directories.values() if oid is not None}
        listing = RemoteListing(remotes, began, refused=refused, directories=ids, marked=marked)
        with core.lock:
            origin.relisted(listing)
        for name, remote in (former.remotes if former is not None else {}).items():
            if listing.remotes.get(name) is not remote:
                core.kernel.forget_name(*name)
        for name in refused:
            if former is None or name not in former.refused:
                core.kernel.forget_name(*name)
        if origin.revalidate is not None:
            self._drop_stale(origin.namespace, listing)
        if former is not None:
            self._drop_directories(former)

    def _ask(self) -> Found:
        patience = Patience(self._origins.stop, attempts=ATTEMPTS)
        while True:
            found = Found()
            try:
                for page in self._origin.client.list():
                    for listed in page:
                        found.add(listed)
                    if len(found) > OBJECTS_MAX:
                        raise OriginRefused(
                            f"{self._origin.url} has more than {OBJECTS_MAX} objects: give a longer prefix"
                        )
                    if self._origins.stop.is_set():
                        raise OriginError("the mount ends")
            except OriginError as error:
                patience.after(error)
                continue
            break
        found.settle()
        if found.unfit:
            log.info("%s: %d keys can't be files and aren't shown", self._origin.url, found.unfit)
        if found.refused:
            log.info("%s: %d paths are refused; the status names them", self._origin.url, len(found.refused))
        return found

    def _directory(self, parts: tuple[bytes, ...]) -> int | None:
        """The directory's id in the store, made if it is absent; None where a file is in the way."""
        if parts not in self._directories:
            parent = self._directory(parts[:-1])
            access = self._found.directories.get(parts)
            self._directories[parts] = None if parent is None else self._made_with_room(parent, parts[-1], access)
        return self._directories[parts]

    def _made_with_room(self, parent: int, name: bytes, access: Access | None) -> int | None:
        return self._core.cache.with_room(lambda: self._made(parent, name, access))

    def _made(self, parent: int, name: bytes, access: Access | None) -> int | None:
        core, origin = self._core, self._origin
        while True:
            with core.lock, core.store.atomically():
                oid = core.store.lookup(parent, name)
                if oid is None:
                    owner = core.store.attributes(origin.namespace)
                    shown = Access(0o755, owner.uid, owner.gid) if access is None else origin.allowed(access)
                    return core.store.mkdir(parent, name, *shown)
                attributes = core.store.attributes(oid)
                if attributes.kind is Kind.DIRECTORY:
                    if access is not None:
                        follow_directory(core, origin, attributes, access)
                    return oid
                if core.store.get_xattr(oid, ETAG) is None:
                    return None  # written here, and not at the origin yet
                # It was an object, and is cached; there are others below it now.
                core.store.unlink(parent, name)
            core.kernel.forget_name(parent, name)

    def _remote(self, parent: int, name: bytes, listed: Listed) -> Remote:
        """The one that is known already, where it is the same content. Where what was cached counts for ever, a cached
        object's content is what the origin has."""
        core, origin = self._core, self._origin
        former = origin.get(parent, name)
        with core.lock, core.store.atomically():
            oid = core.store.lookup(parent, name)
            cached = None if oid is None else _cached_as(core, oid, listed.key)
            if cached is not None and oid is not None and listed.access is not None:
                follow_file(core, origin, core.store.attributes(oid), listed.access)
        same = former is not None and former.listed._replace(access=listed.access) == listed
        if former is not None and same:
            former.listed = listed
        if cached is not None and origin.revalidate is None:
            if former is not None and former.listed.etag == cached.etag and former.listed.size == cached.size:
                return former
            listed, same = cached._replace(access=listed.access), False
        if former is not None and same:
            return former
        is_cached = cached is not None and (cached.etag, cached.size) == (listed.etag, listed.size)
        return self._origins.new_remote(origin, parent, name, listed, oid if is_cached else None)

    def _drop_stale(self, directory: int, listing: RemoteListing) -> None:
        """Remove from the device what the origin has otherwise by now, or no longer."""
        core, todo = self._core, [directory]
        while todo:
            here = todo.pop()
            try:
                entries = core.store.list_directory(here)
            except NoSuchObject:
                continue
            for name, oid in entries:
                with core.lock, core.store.atomically():
                    if core.store.lookup(here, name) != oid or (here, name) in listing.refused:
                        continue
                    if core.store.attributes(oid).kind is Kind.DIRECTORY:
                        todo.append(oid)
                        continue
                    if core.store.get_xattr(oid, ETAG) is None:
                        continue  # never the origin's, or not yet
                    remote = listing.remotes.get((here, name))
                    if remote is not None and holds(core, oid, remote):
                        continue
                    core.store.unlink(here, name)
                core.kernel.forget_name(here, name)

    def _drop_directories(self, former: RemoteListing) -> None:
        """Remove directories that the origin no longer has; those that hold something cached stay."""
        core, kept = self._core, set(self._directories.values())
        gone = {remote.parent for remote in former.remotes.values()} | former.directories
        gone -= kept
        for directory in gone:
            while directory not in kept and directory != self._origin.namespace:
                with core.lock, core.store.atomically():
                    names = core.store.names_of(directory)
                    if not names or self._versions.in_directory(directory):
                        break
                    parent, name = names[0]
                    try:
                        core.store.rmdir(parent, name)
                    except StoreError:
                        break
                core.kernel.forget_name(parent, name)
                directory = parent


def _cached_as(core: Volume, oid: int, key: str) -> Listed | None:
    """What a cached object was at the origin; None for what isn't one. Both locks held."""
    attributes, etag = core.store.attributes(oid), core.store.get_xattr(oid, ETAG)
    if attributes.kind is not Kind.FILE or etag is None:
        return None
    return Listed(key, attributes.size, attributes.mtime_ns, etag.decode())


def holds(core: Volume, oid: int, remote: Remote) -> bool:
    """Whether a committed object is just this content of the origin's. Both locks held."""
    cached = _cached_as(core, oid, "")
    listed = remote.listed
    if cached is None or cached.size != listed.size:
        return False
    return cached.etag == listed.etag and (bool(listed.etag) or cached.mtime_ns == listed.mtime_ns)
