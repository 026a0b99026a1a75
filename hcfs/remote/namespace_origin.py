"""One namespace's origin: its client, its options, and what is known of what it has."""

from __future__ import annotations

import errno
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from hcfs.cache import ETAG
from hcfs.filesystem.calls import CallError
from hcfs.filesystem.versions.version import Name
from hcfs.filesystem.volume import Volume
from hcfs.options.namespace_options import NamespaceOptions
from hcfs.origin import Access, Listed, OriginClient, OriginUploader
from hcfs.remote.listing.remote import Remote, RemoteListing
from hcfs.store import Attributes

LISTED_S = 10.0
"""Seconds after which an origin is listed again before a name is said to be absent, or a directory is listed."""

STREAMED = 1 << 20
"""Files up to this size are opened when they are here whole: they come in one write to the device."""

REMOTE_MODE = 0o444
WRITABLE_MODE = 0o644
"""Of files that came from an origin which has no modes."""


@dataclass(slots=True)
class OriginCounts:
    """Since the mount began, or since the namespace got its origin."""

    ingests: int = 0
    ingested_bytes: int = 0
    failures: int = 0
    listings: int = 0
    uploads: int = 0
    uploaded_bytes: int = 0
    upload_failures: int = 0
    last_error: str | None = None
    last_error_at: float = 0.0
    """On the monotonic clock."""

    def note_error(self, error: object) -> None:
        """What the status says went wrong last, whatever has gone well since."""
        self.last_error, self.last_error_at = str(error), time.monotonic()

    @property
    def last_error_s(self) -> float | None:
        """Seconds since then."""
        return None if self.last_error is None else round(time.monotonic() - self.last_error_at, 1)


class Origin:
    """One namespace's origin: what is known of it, and its client."""

    def __init__(
        self,
        namespace: int,
        options: NamespaceOptions,
        client: OriginClient,
        uploader: OriginUploader | None,
        *,
        not_allowed: str | None = None,
    ) -> None:
        """uploader: None where the write policy lets nothing go out. not_allowed: why nothing goes to this origin, nor
        comes from it."""
        assert options.origin is not None
        self.namespace = namespace
        self.options = options
        self.url = options.origin.rstrip("/")
        self.client = client
        self.uploader = uploader
        self.not_allowed = not_allowed
        self.revalidate = options.revalidate_s
        """Seconds for which a listing counts; None: what is cached counts for ever."""
        self.listing: RemoteListing | None = None
        self.outdated = False
        """The origin has answered otherwise than it was listed."""
        self.under_way: Future[None] | None = None
        """The listing that is being made; guarded by the registry's lock."""
        self.counts = OriginCounts()
        self.noted: dict[Name, tuple[float, Remote | None]] = {}
        """What this device has changed at the origin, and when: a listing that was begun before doesn't have it."""

    @property
    def writes_through(self) -> bool:
        """Whether a close waits for the upload."""
        return self.options.write_policy == "write-through"

    @property
    def file_mode(self) -> int:
        """Permissions of files that come from the origin."""
        return REMOTE_MODE if self.uploader is None else WRITABLE_MODE

    def shown(self, listed: Listed, owner: Attributes) -> Access:
        """Owner, group and mode of what comes from the origin: its own, less what would write where nothing is ever
        sent. An origin that has none gives all files to the namespace's owner."""
        if listed.access is None:
            return Access(self.file_mode, owner.uid, owner.gid)
        return self.allowed(listed.access)

    def allowed(self, access: Access) -> Access:
        """What of an origin's own rights counts here."""
        return access if self.uploader is not None else access._replace(mode=access.mode & ~0o222)

    def uploaded_access(self, attributes: Attributes) -> Access | None:
        """What an origin that keeps owners and modes has of a file that was sent there; None where it has none."""
        if self.uploader is None or self.uploader.conditional:
            return None
        return Access(attributes.mode & 0o777, attributes.uid, attributes.gid)

    def refused(self, parent: int, name: bytes) -> str:
        """Why a name that the origin has can't be had; "" where it can, or where it has none."""
        return "" if self.listing is None else self.listing.refused.get((parent, name), "")

    def require_certain(self, parent: int, name: bytes) -> None:
        """EIO for a name of which the origin can't say what it is: it is neither absent, nor another one's content."""
        reason = self.refused(parent, name)
        if reason:
            raise CallError(errno.EIO, reason)

    def streams(self, remote: Remote) -> bool:
        """Whether a file is open when its fetch has begun, and not only when it is here."""
        return self.options.origin_open == "stream" and remote.listed.size > STREAMED

    def may_keep(self, core: Volume, remote: Remote, former: Attributes | None) -> bool:
        """Whether what was fetched may take its name, which leads to `former` now: not over what was written here
        meanwhile. Both locks held."""
        if self.uploader is None:
            return True
        written = former is not None and core.store.get_xattr(former.id, ETAG) is None
        return self.is_current(remote) and not written

    def note(self, name: Name, remote: Remote | None, now: float) -> None:
        """This device has stored this content at the origin, or with None removed what was there. The core's lock is
        held."""
        self.noted[name] = (now, remote)
        if self.listing is not None:
            self.listing.set(name, remote)

    def relisted(self, listing: RemoteListing) -> None:
        """A new listing counts, with what was noted since it was begun. The core's lock is held."""
        self.noted = {name: (at, remote) for name, (at, remote) in self.noted.items() if at >= listing.at}
        for name, (_, remote) in self.noted.items():
            listing.set(name, remote)
        self.listing, self.outdated = listing, False

    def get(self, parent: int, name: bytes) -> Remote | None:
        """What the latest listing says of a name."""
        listing = self.listing
        if listing is None:
            remote = self.noted.get((parent, name), (0.0, None))[1]
        else:
            remote = listing.remotes.get((parent, name))
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


class OriginRegistry(Protocol):
    """The origins of one mount, as those who fetch, list and upload see them."""

    stop: threading.Event
    """Set when the mount ends."""

    def of(self, namespace: int) -> Origin | None:
        """The origin of a namespace; None for a local-only one."""

    def new_remote(self, origin: Origin, parent: int, name: bytes, listed: Listed, ino: int | None) -> Remote:
        """A content at an origin. ino: that of the object which is on the device already; None: a number of its
        own."""

    def changed(self, origin: Origin, name: Name, remote: Remote | None) -> None:
        """This device has stored this content at an origin, or with None removed what was there."""
