"""The namespaces that have an origin. Only they have a client of the network; all others have no way to one."""

from __future__ import annotations

import errno
import itertools
import logging
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from hcfs.cache import ABSENT, ANYTHING
from hcfs.errors import HcfsError, UsageError
from hcfs.filesystem.calls import CallError
from hcfs.filesystem.handles.object_handle import ObjectReading
from hcfs.filesystem.inodes import REMOTE
from hcfs.filesystem.versions.replaced_names import REPLACED_KEPT, ReplacedNames
from hcfs.filesystem.versions.version import Name, Versions
from hcfs.filesystem.volume import Volume
from hcfs.options.namespace_options import NamespaceOptions
from hcfs.options.schemes import problem_of, scheme_of
from hcfs.origin import Listed, OriginError, OriginUploader, RefusedClient, open_origin, problem_of_client
from hcfs.remote.allowed_origins import AllowedOrigins
from hcfs.remote.fetching.ingest import Ingests
from hcfs.remote.listing.relisting import Relisting
from hcfs.remote.listing.remote import Remote, RemoteListing
from hcfs.remote.namespace_origin import Origin
from hcfs.remote.uploading.sync_marks import rebase
from hcfs.remote.uploading.uploads import Uploads
from hcfs.store.errors import NoSuchObject

log = logging.getLogger(__name__)

LISTING_WAIT_S = 30.0
"""Most seconds that a lookup waits for a listing: it holds its directory against changes."""

LISTINGS_AT_ONCE = 2

REFUSED_SHOWN = 100
"""Paths that the status names of those that an origin has and that can't be had."""


class Origins:
    """The registry. Its threads list and fetch; whoever waits for them does so in threads of its own."""

    def __init__(
        self,
        core: Volume,
        versions: Versions,
        replaced: ReplacedNames,
        reading: ObjectReading,
        *,
        upload_attempts: int,
        allowed: AllowedOrigins,
    ) -> None:
        """upload_attempts: failures in a row after which an upload in the background is given up. allowed: the origins
        that the mount allows; a namespace with another one is served as far as the device has it, and changed by
        nobody."""
        self._core = core
        self._versions = versions
        self.allowed = allowed
        self._lock = threading.Lock()
        self._origins: dict[int, Origin] = {}
        self._numbers = itertools.count(REMOTE)
        self._remotes: WeakValueDictionary[int, Remote] = WeakValueDictionary()
        self._replaced: deque[Remote] = deque(maxlen=REPLACED_KEPT)
        """Contents that were replaced or removed lately: an open that was on its way to one is told so."""
        self._listings = ThreadPoolExecutor(LISTINGS_AT_ONCE, "hcfs-origin")
        self.stop = threading.Event()
        self.ingests = Ingests(core, replaced, reading, self.stop, self.new_remote)
        self.uploads = Uploads(core, self, self.stop, attempts=upload_attempts)
        for namespace in core.cache.namespaces.names().values():
            self.update(namespace)
        self.uploads.load()

    def __bool__(self) -> bool:
        return bool(self._origins)

    def __iter__(self) -> Iterator[Origin]:
        return iter(list(self._origins.values()))

    def update(self, namespace: int) -> None:
        """A namespace's options may have changed. An origin that can't be used is kept, says why in the status, and
        fails each call; nothing else is held up by it."""
        try:
            options = self._core.cache.namespaces.options(namespace)
        except NoSuchObject:
            options = NamespaceOptions()
        former = self._origins.get(namespace)
        if options.origin is None:
            if former is not None:
                del self._origins[namespace]
        elif former is None or former.options != options:
            origin = self._made(namespace, options, options.origin)
            if former is not None and former.options.origin == options.origin:
                origin.listing, origin.counts, origin.outdated = former.listing, former.counts, True
                origin.noted = former.noted
            self._origins[namespace] = origin

    def require_library(self, url: str) -> None:
        """UsageError where an origin can't be had for want of the library."""
        scheme = scheme_of(url)
        missing = None if scheme is None else scheme.missing
        if missing is not None:
            log.warning("the origin %s is refused: %s", url, missing)
            raise UsageError(f"origin={url} can't be set: {missing} in the daemon's environment")

    def _made(self, namespace: int, options: NamespaceOptions, url: str) -> Origin:
        # Of what isn't an origin, its fault says more: nothing goes there in any case.
        refusal = None if problem_of(url) else self.allowed.refusal(url)
        if refusal is not None:
            log.warning("namespace %s is refused: %s", self._name_of(namespace), refusal)
            return Origin(namespace, options, RefusedClient(refusal), None, not_allowed=refusal)
        fault = options.origin_problem
        uploader = OriginUploader(url, namespace, fault=fault) if options.writes else None
        client = open_origin(url, fault=fault)
        origin = Origin(namespace, options, client, uploader)
        problem = problem_of_client(client)
        if problem is not None:
            origin.counts.note_error(problem)
            log.warning("an origin can't be used: %s", problem)
        return origin

    def _name_of(self, namespace: int) -> str:
        return self._core.store.path_of(namespace).decode(errors="backslashreplace")

    def of(self, namespace: int) -> Origin | None:
        """The origin of a namespace; None for a local-only one."""
        return self._origins.get(namespace)

    def of_inode(self, ino: int) -> Origin | None:
        """The origin of an inode's namespace; None for local-only ones, for the root, and for versions."""
        remote = self._remotes.get(ino)
        try:
            return self._origins.get(self._core.store.namespace_of(ino) if remote is None else remote.namespace)
        except NoSuchObject:
            return None

    def refuse_elsewhere(self, one: int, other: int) -> None:
        """EXDEV for two inodes, unless one origin is both's."""
        if self.of_inode(one) is not self.of_inode(other):
            raise CallError(errno.EXDEV)

    def remote(self, ino: int) -> Remote | None:
        """What an inode number stands for, as long as it is listed or open."""
        return self._remotes.get(ino)

    def new_remote(self, origin: Origin, parent: int, name: bytes, listed: Listed, ino: int | None) -> Remote:
        """A listed file, known from now on. ino: that of its object on the device; None: a number of its own."""
        number = next(self._numbers) if ino is None else ino
        remote = Remote(origin.namespace, parent, name, listed, number)
        self._remotes[number] = remote
        return remote

    def changed(self, origin: Origin, name: Name, remote: Remote | None) -> None:
        """This device has stored this content at an origin, or with None removed what was there: what is listed and
        what writers of the name are to replace goes by that from now on. The core's lock is held."""
        origin = self._origins.get(origin.namespace, origin)  # another option of it may have been set meanwhile
        former = origin.get(*name)
        if former is not None:
            self._replaced.append(former)
        origin.note(name, remote, self._core.clock())
        base = ABSENT if remote is None else remote.listed.etag or ANYTHING
        for version in self._versions.of_name(*name):
            rebase(version.staged, base)

    # --- listing -----------------------------------------------------------------------------------------------------

    def list_now(self, origin: Origin) -> None:
        """List the origin, together with whoever waits for that already. Blocks, LISTING_WAIT_S at most. EIO when it
        can't be listed: nothing is said to be absent for that."""
        if origin.not_allowed is not None:
            raise CallError(errno.EIO, origin.not_allowed)
        with self._lock:
            future = origin.under_way
            if future is None:
                if self.stop.is_set():
                    raise CallError(errno.EIO, "the mount ends")
                future = origin.under_way = self._listings.submit(self._list, origin)
        try:
            future.result(LISTING_WAIT_S)
        except CancelledError:
            raise CallError(errno.EIO, "the mount ends") from None
        except FutureTimeout:
            raise OriginError(f"{origin.url} isn't listed after {LISTING_WAIT_S:g} s") from None
        except HcfsError as error:
            raise CallError(error.errno, str(error)) from None

    def _list(self, origin: Origin) -> None:
        try:
            if self.stop.is_set():
                raise OriginError("the mount ends")
            Relisting(self._core, self._versions, self, origin).run()
            origin.counts.listings += 1
        except HcfsError as error:
            origin.counts.note_error(error)
            if not self.stop.is_set():
                log.warning("an origin can't be listed: %s", error)
            raise
        except BaseException as fault:
            log.exception("%s can't be listed, for a fault of hcfs", origin.url)
            refusal = OriginError(f"{origin.url} can't be listed: an unexpected error ({type(fault).__name__})")
            origin.counts.note_error(refusal)
            raise refusal from None
        finally:
            with self._lock:
                origin.under_way = None

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Begin nothing more, and let those go that wait: they get EIO. Doesn't wait."""
        self.stop.set()
        self.ingests.end()
        self.uploads.end()

    def close(self) -> None:
        """Wait for the threads, which see within a request's time limit that they are to end."""
        self.end()
        self._listings.shutdown(wait=True, cancel_futures=True)
        self.ingests.close()
        self.uploads.close()

    def _refused(self, listing: RemoteListing) -> list[dict[str, str]]:
        shown = []
        for (parent, name), reason in itertools.islice(listing.refused.items(), REFUSED_SHOWN):
            with suppress(HcfsError):  # its directory is gone
                path = (self._core.store.path_of(parent) + b"/" + name).partition(b"/")[2]
                shown.append({"path": path.decode(errors="backslashreplace"), "reason": reason})
        return shown

    def status(self) -> dict[str, Any]:
        """By namespace: what is listed, and what is under way."""
        shown = {}
        for origin in self:
            try:
                name = self._name_of(origin.namespace)
            except HcfsError:
                continue
            listing = origin.listing
            shown[name] = {
                "url": origin.url,
                "not_allowed": origin.not_allowed,
                "objects": None if listing is None else len(listing.remotes),
                "listed_s": None if listing is None else round(self._core.clock() - listing.at, 1),
                "refused_objects": 0 if listing is None else len(listing.refused),
                "refused": [] if listing is None else self._refused(listing),
                "listings": origin.counts.listings,
                "ingests": origin.counts.ingests,
                "ingested_bytes": origin.counts.ingested_bytes,
                "failures": origin.counts.failures,
                "last_error": origin.counts.last_error,
                "last_error_s": origin.counts.last_error_s,
                "ingesting": self.ingests.status(origin.namespace),
                "write_policy": origin.options.write_policy,
                "uploads": origin.counts.uploads,
                "uploaded_bytes": origin.counts.uploaded_bytes,
                "upload_failures": origin.counts.upload_failures,
                **self.uploads.status(origin.namespace),
            }
        return shown
