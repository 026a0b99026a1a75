"""The namespaces that have an origin. Only they have a client of the network; all others have no way to one."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from hcfs.cache import NamespaceOptions
from hcfs.errors import HcfsError
from hcfs.mount.answers import CallError
from hcfs.mount.core import Core
from hcfs.mount.ingest import Ingests
from hcfs.mount.origin_listing import Relisting
from hcfs.mount.remote import REMOTE_INO, Remote, RemoteListing
from hcfs.origin import ObjectStoreClient, OriginClient, OriginError
from hcfs.store.errors import NoSuchObject

log = logging.getLogger(__name__)

LISTED_S = 10.0
"""Seconds after which an origin is listed again before a name is said to be absent, or a directory is listed."""

LISTING_WAIT_S = 30.0
"""Most seconds that a lookup waits for a listing: it holds its directory against changes."""

LISTINGS_AT_ONCE = 2


@dataclass(slots=True)
class OriginCounts:
    """Since the mount began, or since the namespace got its origin."""

    ingests: int = 0
    ingested_bytes: int = 0
    failures: int = 0
    listings: int = 0
    last_error: str | None = None


class Origin:
    """One namespace's origin: what is known of it, and its client."""

    def __init__(self, namespace: int, options: NamespaceOptions, client: OriginClient) -> None:
        assert options.origin is not None
        self.namespace = namespace
        self.options = options
        self.url = options.origin.rstrip("/")
        self.client = client
        self.revalidate = options.revalidate_s
        """Seconds for which a listing counts; None: what is cached counts for ever."""
        self.listing: RemoteListing | None = None
        self.outdated = False
        """The origin has answered otherwise than it was listed."""
        self.under_way: Future[None] | None = None
        """The listing that is being made; guarded by the registry's lock."""
        self.counts = OriginCounts()

    def get(self, parent: int, name: bytes) -> Remote | None:
        """What the latest listing says of a name."""
        listing = self.listing
        remote = None if listing is None else listing.remotes.get((parent, name))
        if remote is None or remote.successor is None:
            return remote
        latest = remote.successor
        while latest.successor is not None:
            latest = latest.successor
        remote.successor = latest
        return latest

    def is_current(self, remote: Remote) -> bool:
        """Whether the latest listing has just this content."""
        return self.get(remote.parent, remote.name) is remote

    def must_list(self, now: float, *, known: bool, cached: bool) -> bool:
        """Whether the origin has to be listed before something can be said of a name. known: it is listed. cached: it
        is on the device."""
        listing = self.listing
        if self.revalidate is None and cached:
            return False
        if listing is None or self.outdated:
            return True
        age = now - listing.at
        if self.revalidate is not None and age > self.revalidate:
            return True
        return not known and age > LISTED_S


class Origins:
    """The registry. Its threads list and fetch; whoever waits for them does so in threads of its own."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._origins: dict[int, Origin] = {}
        self._numbers = itertools.count(REMOTE_INO)
        self._remotes: WeakValueDictionary[int, Remote] = WeakValueDictionary()
        self._listings = ThreadPoolExecutor(LISTINGS_AT_ONCE, "hcfs-origin")
        self.stop = threading.Event()
        self.ingests = Ingests(core, self.stop, self.new_remote)
        for namespace in core.cache.namespaces.names().values():
            self.update(namespace)

    def __bool__(self) -> bool:
        return bool(self._origins)

    def __iter__(self) -> Iterator[Origin]:
        return iter(list(self._origins.values()))

    def update(self, namespace: int) -> None:
        """A namespace's options may have changed. UsageError when its origin can't be used here."""
        try:
            options = self._core.cache.namespaces.options(namespace)
        except NoSuchObject:
            options = NamespaceOptions()
        former = self._origins.get(namespace)
        if options.origin is None:
            if former is not None:
                del self._origins[namespace]
        elif former is None or former.options != options:
            origin = Origin(namespace, options, ObjectStoreClient(options.origin))
            if former is not None and former.options.origin == options.origin:
                origin.listing, origin.counts, origin.outdated = former.listing, former.counts, True
            self._origins[namespace] = origin

    def of(self, namespace: int) -> Origin | None:
        """The origin of a namespace; None for a local-only one."""
        return self._origins.get(namespace)

    def remote(self, ino: int) -> Remote | None:
        """What an inode number stands for, as long as it is listed or open."""
        return self._remotes.get(ino)

    def new_remote(self, origin: Origin, parent: int, name: bytes, listed: Any, ino: int | None) -> Remote:
        """ino: that of the object which is on the device already; None: a number of its own."""
        number = next(self._numbers) if ino is None else ino
        remote = Remote(origin.namespace, parent, name, listed, number)
        self._remotes[number] = remote
        return remote

    # --- listing -----------------------------------------------------------------------------------------------------

    def list_now(self, origin: Origin) -> None:
        """List the origin, together with whoever waits for that already. Blocks, LISTING_WAIT_S at most. EIO when it
        can't be listed: nothing is said to be absent for that."""
        with self._lock:
            future = origin.under_way
            if future is None:
                if self.stop.is_set():
                    raise CallError(5, "the mount ends")
                future = origin.under_way = self._listings.submit(self._list, origin)
        try:
            future.result(LISTING_WAIT_S)
        except FutureTimeout:
            raise OriginError(f"{origin.url} isn't listed after {LISTING_WAIT_S:g} s") from None
        except HcfsError as error:
            raise CallError(error.errno, str(error)) from None

    def _list(self, origin: Origin) -> None:
        try:
            if self.stop.is_set():
                raise OriginError("the mount ends")
            Relisting(self._core, self, origin).run()
            origin.counts.listings += 1
        except HcfsError as error:
            origin.counts.last_error = str(error)
            if not self.stop.is_set():
                log.warning("an origin can't be listed: %s", error)
            raise
        except Exception:
            log.exception("%s can't be listed, for a fault of hcfs", origin.url)
            raise OriginError(f"{origin.url} can't be listed") from None
        finally:
            with self._lock:
                origin.under_way = None

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Begin nothing more, and let those go that wait: they get EIO. Doesn't wait."""
        self.stop.set()
        self.ingests.end()

    def close(self) -> None:
        """Wait for the threads, which see within a request's time limit that they are to end."""
        self.end()
        self._listings.shutdown(wait=True, cancel_futures=True)
        self.ingests.close()

    def status(self) -> dict[str, Any]:
        """By namespace: what is listed, and what is under way."""
        store, shown = self._core.store, {}
        for origin in self:
            try:
                name = store.path_of(origin.namespace).decode(errors="backslashreplace")
            except HcfsError:
                continue
            listing = origin.listing
            shown[name] = {
                "url": origin.url,
                "objects": None if listing is None else len(listing.remotes),
                "listed_s": None if listing is None else round(self._core.clock() - listing.at, 1),
                "listings": origin.counts.listings,
                "ingests": origin.counts.ingests,
                "ingested_bytes": origin.counts.ingested_bytes,
                "failures": origin.counts.failures,
                "last_error": origin.counts.last_error,
                "ingesting": self.ingests.status(origin.namespace),
            }
        return shown
