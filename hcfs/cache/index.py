"""What the cache knows of every committed file, behind one short lock: recency, grace, usage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hcfs.cache.grace import Grace
from hcfs.cache.recency import Recency
from hcfs.cache.usage import UsageCounts
from hcfs.store.attributes import SLOT_MASK


@dataclass(frozen=True, slots=True)
class Victim:
    """An object that is about to be evicted."""

    oid: int
    blocks: int
    namespace: int


class Index:
    """Follows the store as its observer; answers who was used, who is protected, who occupies what.

    Locks: `lock` is taken inside the store's lock (the store calls `added` and `removed` while it holds its own), so
    nobody may call the store while holding `lock`. Between a last look at a victim and the store's answer to its
    eviction, `_gate` is held, outside both: a lookup of that very object waits there for the outcome, some
    microseconds, so that it is never told of an object that goes a moment later.
    """

    def __init__(self, lookup_grace_s: float, entry_timeout_s: float, clock: Callable[[], float]) -> None:
        self.lock = threading.Lock()
        self.recency = Recency()
        self.grace = Grace(lookup_grace_s, entry_timeout_s, clock)
        self.usage = UsageCounts()
        self._namespaces: dict[int, int] = {}
        self._gate = threading.Lock()
        self._condemned = 0

    def added(self, oid: int, namespace: int, blocks: int, name: bytes) -> None:
        """A file became a committed one; it is the most recently used. The store holds its lock."""
        with self.lock:
            self._forget(oid)
            if not self.recency.was_last_in_slot(oid):
                # A rename removes and adds the same object, whose protection goes on; a new one has none yet.
                self.grace.forget(oid)
            group = namespace & SLOT_MASK
            self._namespaces[group] = namespace
            self.recency.add(oid, group)
            self.usage.add(oid, namespace, blocks, name)

    def removed(self, oid: int, namespace: int, blocks: int, name: bytes) -> None:  # noqa: ARG002  # the observer's signature
        """A committed file lost its last name, was evicted, or was quarantined. The store holds its lock."""
        with self.lock:
            self._forget(oid)

    def load(self, files: Iterable[tuple[int, int, int, bytes]]) -> None:
        """Add (id, namespace, blocks, name) of files that aren't present, the least recently used first."""
        with self.lock:
            for oid, namespace, blocks, name in files:
                group = namespace & SLOT_MASK
                self._namespaces[group] = namespace
                self.recency.add(oid, group)
                self.usage.add(oid, namespace, blocks, name)

    def looked_up(self, oid: int) -> bool:
        """The object was found by name: most recently used, and protected. False when it was evicted meanwhile.

        When the object is being evicted at this moment, it waits for the outcome, which takes the store's lock: so the
        caller doesn't hold that.
        """
        while True:
            with self.lock:
                if self._condemned != oid:
                    found = self.recency.touch(oid)
                    if found:
                        self.grace.protect(oid)
                    return found
            with self._gate:
                pass

    def used(self, oid: int) -> bool:
        """The object, which the caller pinned or just published, was used; False when it isn't a committed file."""
        with self.lock:
            return self.recency.touch(oid)

    @contextmanager
    def condemned(self, stamp: int, oid: int) -> Iterator[Victim | None]:
        """Keep lookups of the object waiting while the caller evicts it. None when it was used since `stamp`, is
        protected, or is gone."""
        with self._gate:
            with self.lock:
                victim = None
                if self.recency.stamp_of(oid) == stamp and not self.grace.covers(oid, self.grace.now()):
                    self._condemned = oid
                    victim = Victim(oid, self.usage.blocks_of(oid), self._namespace_of(oid))
            try:
                yield victim
            finally:
                with self.lock:
                    self._condemned = 0

    def _forget(self, oid: int) -> None:
        if oid in self.recency:
            self.usage.remove(oid, self._namespace_of(oid))
            self.recency.remove(oid)

    def _namespace_of(self, oid: int) -> int:
        group = self.recency.group_of(oid)
        assert group is not None
        return self._namespaces[group]
