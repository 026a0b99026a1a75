"""What the cache knows of every committed file, behind one short lock: segments and recency, grace, usage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hcfs.cache.grace import Grace
from hcfs.cache.segments import Segments
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

    def __init__(
        self, capacity: int, lookup_grace_s: float, entry_timeout_s: float, clock: Callable[[], float]
    ) -> None:
        """capacity: of the store, bytes."""
        self.lock = threading.Lock()
        self.grace = Grace(lookup_grace_s, entry_timeout_s, clock)
        self.usage = UsageCounts()
        self.segments = Segments(capacity, self.usage.blocks_of)
        self._namespaces: dict[int, int] = {}
        self._kept: set[int] = set()
        self._gate = threading.Lock()
        self._condemned = 0

    def added(self, oid: int, namespace: int, blocks: int, name: bytes) -> None:
        """A file became a committed one; it is the most recently used. The store holds its lock."""
        with self.lock:
            self._forget(oid)
            if not self.segments.recency.was_last_in_slot(oid):
                # A rename removes and adds the same object, whose protection goes on; a new one has none yet.
                self.grace.forget(oid)
            group = namespace & SLOT_MASK
            self._namespaces[group] = namespace
            self.usage.add(oid, namespace, blocks, name)
            self.segments.add(oid, group, blocks, self.grace.now(), kept=oid in self._kept)

    def removed(self, oid: int, namespace: int, blocks: int, name: bytes) -> None:  # noqa: ARG002  # the observer's signature
        """A committed file lost its last name, was evicted, or was quarantined. The store holds its lock."""
        with self.lock:
            self._forget(oid)

    def load(self, files: Iterable[tuple[int, int, int, bytes, int]]) -> None:
        """Add (id, namespace, blocks, name, nanoseconds from its last change to its last use) of files that aren't
        present, the least recently used first."""
        with self.lock:
            for oid, namespace, blocks, name, in_use_ns in files:
                group = namespace & SLOT_MASK
                self._namespaces[group] = namespace
                self.usage.add(oid, namespace, blocks, name)
                self.segments.load(oid, group, blocks, in_use_ns / 1e9, kept=oid in self._kept)
            self.segments.end_load()

    def looked_up(self, oid: int) -> bool:
        """The object was found by name: most recently used, and protected. False when it was evicted meanwhile.

        When the object is being evicted at this moment, it waits for the outcome, which takes the store's lock: so the
        caller doesn't hold that.
        """
        while True:
            with self.lock:
                if self._condemned != oid:
                    found = self.segments.touch(oid, self.grace.now())
                    if found:
                        self.grace.protect(oid)
                    return found
            with self._gate:
                pass

    def used(self, oid: int) -> bool:
        """The object, which the caller pinned or just published, was used; False when it isn't a committed file."""
        with self.lock:
            return self.segments.touch(oid, self.grace.now())

    def keep(self, oid: int) -> None:
        """The object, which will become a committed file, must not be evicted before `let_go` is called."""
        with self.lock:
            self._kept.add(oid)

    def let_go(self, oid: int) -> None:
        """The object may be evicted from now on. Idempotent."""
        with self.lock:
            self._kept.discard(oid)
            self.segments.let_go(oid)

    def kept_blocks(self, namespace: int | None = None) -> int:
        """Blocks of committed files that must not be evicted, in a namespace or in all."""
        with self.lock:
            return self.segments.kept_blocks(None if namespace is None else namespace & SLOT_MASK)

    @contextmanager
    def condemned(self, stamp: int, oid: int) -> Iterator[Victim | None]:
        """Keep lookups of the object waiting while the caller evicts it. None when it was used since `stamp`, is
        protected, or is gone."""
        with self._gate:
            with self.lock:
                victim = None
                if self.segments.recency.stamp_of(oid) == stamp and self._may_go(oid):
                    self._condemned = oid
                    victim = Victim(oid, self.usage.blocks_of(oid), self._namespace_of(oid))
            try:
                yield victim
            finally:
                with self.lock:
                    self._condemned = 0

    def _may_go(self, oid: int) -> bool:
        """Whether the object may be evicted, as far as the cache knows: the last question before it goes, asked of
        every victim whoever wants the room (pins, which the store knows, are its own last question). A state in which
        an object must not be lost is one more condition here; and if many objects can be in it, one more segment that
        Candidates doesn't look at, so that no pass walks through them."""
        return oid not in self._kept and not self.grace.covers(oid, self.grace.now())

    def _forget(self, oid: int) -> None:
        if oid in self.segments:
            self.usage.remove(oid, self._namespace_of(oid))
            self.segments.remove(oid)

    def _namespace_of(self, oid: int) -> int:
        group = self.segments.group_of(oid)
        assert group is not None
        return self._namespaces[group]
