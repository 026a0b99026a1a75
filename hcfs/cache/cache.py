"""The cache over a store: what the mount asks and tells it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from hcfs.cache.eviction import EvictedObjects, Eviction
from hcfs.cache.index import Index
from hcfs.cache.namespaces import Namespaces
from hcfs.cache.quota_eviction import QuotaEviction
from hcfs.cache.quotas import QuotaAccount, Quotas
from hcfs.cache.rebuild import rebuild
from hcfs.cache.unsynced import SYNC
from hcfs.cache.victims import Kept, Names, Victims
from hcfs.cache.watermarks import Watermarks
from hcfs.store import BLOCK, Store
from hcfs.store.accounts import Account
from hcfs.store.errors import MetadataFull

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """A moment of the cache."""

    evictions: int
    """Objects evicted since the mount began, quarantined ones included."""
    evicted_bytes: int
    """Whole blocks that they occupied."""
    evictable_bytes: int
    """Part of the store's used bytes: all that no handle pins and that isn't unsynced. What a lookup protects is in it,
    since the protection ends by itself."""
    unsynced_bytes: int
    """Part of the store's used bytes: files that aren't at their origin yet."""


class Cache:
    """Recency, namespaces and eviction of one store.

    Made once, before anything else uses the recovered store: it becomes the store's observer and its `make_room`, and
    takes the order of use from the last accesses that the store kept. Thread-safe. `looked_up`, `used`,
    `over_high_watermark`, `statistics` and `namespaces` work on memory; `make_room` and the evict functions block for
    device writes. All are called while holding no lock.
    """

    def __init__(
        self,
        store: Store,
        *,
        lookup_grace_s: float = 30.0,
        entry_timeout_s: float,
        high_watermark: float = 0.95,
        low_watermark: float = 0.90,
        on_evicted: Callable[[Names], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """entry_timeout_s: how long the kernel answers lookups from its own cache. on_evicted: called with (directory
        id, name) of what was evicted, in the thread that evicted, no lock held. clock: seconds, monotonic. sleep:
        waits for so many of them.

        UsageError for times and watermarks that make no sense, and for a namespace that needs a later version.
        """
        self._store = store
        self._index = Index(store.usage().capacity, lookup_grace_s, entry_timeout_s, clock)
        self._watermarks = Watermarks(store, high_watermark, low_watermark)
        self._victims = Victims(store, self._index)
        self._eviction = Eviction(store, self._victims, self._watermarks, on_evicted, clock=clock, sleep=sleep)
        self.quotas = Quotas(self._index.lock, self._index.usage, lambda namespace: self.namespaces.options(namespace))
        self.namespaces = Namespaces(store, self._index.lock, self._index.usage, self.quotas)
        self._quota_eviction = QuotaEviction(
            store, self.quotas, self._victims, self._eviction.turn, on_evicted, self._eviction.patiently
        )
        for oid, _ in store.metadata.with_xattr(SYNC):
            self._index.keep(oid)
        rebuild(store, self._index)
        store.attach(self._index, self._eviction.make_room)

    def looked_up(self, oid: int) -> bool:
        """A file was found by name: it becomes the most recently used and is protected from eviction for a while.

        False when there is no such committed file any more, because it was evicted, removed or quarantined since the
        store found it: the name is then absent, or someone else's. False for directories and symlinks too.
        """
        found = self._index.looked_up(oid)
        if found:
            self._store.touch(oid)
        return found

    def used(self, oid: int) -> bool:
        """A file was opened or published: it becomes the most recently used. False as for `looked_up`."""
        found = self._index.used(oid)
        if found:
            self._store.touch(oid)
        return found

    def keep(self, oid: int) -> None:
        """A file that is about to be published isn't at its origin: it must not be evicted. Memory only, also under the
        store's lock."""
        self._index.keep(oid)

    def let_go(self, oid: int) -> None:
        """It may be evicted from now on: its origin has it, or it is gone. Memory only, also under the store's lock.
        Idempotent."""
        self._index.let_go(oid)

    def unsynced_bytes(self, namespace: int | None = None) -> int:
        """Whole blocks of files that must not be evicted, of a namespace or of all."""
        return self._index.kept_blocks(namespace) * BLOCK

    def make_room(self, blocks: int) -> bool:
        """See Eviction.make_room; the store calls it when an allocation of `blocks` blocks, or with 0 of an object's
        row, finds no room."""
        return self._eviction.make_room(blocks)

    def with_room(self, change: Callable[[], T]) -> T:
        """Change something that metadata must have room for: where it has none, evict for it. Others may take what was
        evicted for, so that is repeated as long as something can go. Blocks; no lock is held. MetadataFull when nothing
        can go any more."""
        while True:
            try:
                return change()
            except MetadataFull:
                if not self.make_room(0):
                    raise

    def over_high_watermark(self) -> bool:
        """Whether `evict_to_watermark` has something to do."""
        return self._watermarks.over_high()

    def evict_to_watermark(self) -> int:
        """See Eviction.evict_to_watermark; for the background."""
        return self._eviction.evict_to_watermark()

    def evict_namespace(
        self, namespace: int, nbytes: int | None, stop: Callable[[], bool] = lambda: False
    ) -> EvictedObjects:
        """See Eviction.evict_namespace; for administrators."""
        return self._eviction.evict_namespace(namespace, nbytes, stop)

    def kept(self, namespace: int) -> Kept:
        """See Victims.kept; for administrators."""
        return self._victims.kept(namespace)

    def account(self, namespace: int, name: bytes) -> Account:
        """Whose quota a file of this name counts for: what Store.assign takes. Memory only. NoSuchObject when the
        namespace is gone."""
        return QuotaAccount(self.quotas, self._quota_eviction.make_room, self.quotas.owner(namespace, name))

    def make_room_in_salt(self, namespace: int, name: bytes, blocks: int) -> bool:
        """Evict so that so many blocks, which the namespace has staged, may come to the salt of a name. False when they
        can't. Blocks as QuotaEviction.make_room does."""
        return self._quota_eviction.make_room(self.quotas.owner(namespace, name), blocks, moved=True)

    def over_quota(self) -> bool:
        """Whether a quota was set or lowered, and `evict_to_quotas` has something to do or to look at."""
        return bool(self.quotas.changed) and self._store.state != "read-only"

    def evict_to_quotas(self) -> int:
        """See QuotaEviction.evict_excess; for the background."""
        return sum(self._quota_eviction.evict_excess(namespace) for namespace in list(self.quotas.changed))

    def statistics(self) -> CacheStatistics:
        """The moment's figures."""
        usage = self._store.usage()
        with self._index.lock:
            evictions, evicted_bytes = self._victims.evictions, self._victims.evicted_bytes
        unsynced = self.unsynced_bytes()
        return CacheStatistics(evictions, evicted_bytes, max(0, usage.used - usage.pinned_used - unsynced), unsynced)
