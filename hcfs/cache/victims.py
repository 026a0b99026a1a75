"""One pass of eviction: quarantined objects, then the least recently used, until enough is freed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from hcfs.cache.candidates import Candidates
from hcfs.cache.index import Index, Victim
from hcfs.cache.segments import KEPT, SEGMENTS
from hcfs.cache.usage import Owner
from hcfs.errors import HcfsError
from hcfs.store import BLOCK, Quarantined, Store
from hcfs.store.attributes import SLOT_MASK
from hcfs.store.errors import ReadOnlyStore

logger = logging.getLogger(__name__)

Names = list[tuple[int, bytes]]
"""(id of the directory, name in it) each."""

EVERYTHING = 1 << 62
"""More blocks or objects than there are."""

PROTECTED_CHUNK = 256
"""Objects looked at under one hold of the lock"""

FRUITLESS_S = 0.5
"""A pass that frees nothing for so long ends: a writer gets its ENOSPC within a second."""


@dataclass(slots=True)
class Freed:
    """What a pass has freed so far."""

    blocks: int = 0
    objects: int = 0
    names: Names = field(default_factory=list)
    """Names that are no longer there: the kernel is to be told."""


@dataclass(slots=True)
class Kept:
    """Objects of a namespace that eviction passes over, each counted once, and whole blocks that they occupy."""

    unsynced_objects: int = 0
    unsynced_bytes: int = 0
    """Not at the origin yet, open or not: nothing evicts them."""

    pinned_objects: int = 0
    pinned_bytes: int = 0
    """Of an open handle, which a mapping is too."""
    protected_objects: int = 0
    protected_bytes: int = 0
    """By a lookup, for `lookup_grace`."""
    other_objects: int = 0
    other_bytes: int = 0
    """Could be evicted now, or are empty and so free no bytes."""


class Victims:
    """Removes objects from the store.

    Passed over: objects that are pinned, that a lookup protects, that were used since the pass began, and that the
    store can't remove; the next one is taken instead. What must not be lost, Index._may_go says. One pass at a time:
    the caller sees to that.
    """

    def __init__(self, store: Store, index: Index) -> None:
        self._store = store
        self._index = index
        self.evictions = 0
        """Objects removed so far."""
        self.evicted_bytes = 0

    def evict(
        self,
        freed: Freed,
        *,
        blocks: int = 0,
        objects: int = 0,
        limit: int = EVERYTHING,
        groups: Sequence[int] | None = None,
        owner: Owner | None = None,
    ) -> None:
        """Evict until `freed` has at least so many blocks and objects, or `limit` objects, or there is no more to try.

        groups: of the index; None for all, quarantined objects first. owner: only its objects, instead. The freed
        blocks are usable after the store's next commit. Memory only. Raises ReadOnlyStore; `freed` is right also then.
        """
        last = time.monotonic()

        def enough() -> bool:
            done = freed.blocks >= blocks and freed.objects >= objects
            return done or freed.objects >= limit or time.monotonic() > last + FRUITLESS_S

        if groups is None and owner is None and self._store.usage().quarantined_objects:
            for bad in self._store.removals.quarantined():
                if enough():
                    return
                if self._purge(bad, freed):
                    last = time.monotonic()
        accepts = None
        if owner is not None:
            groups, accepts = [owner.namespace & SLOT_MASK], self._has_salt(owner)
        candidates = Candidates(self._index.lock, self._index.segments, self._index.grace, groups, accepts)
        while not enough():
            candidate = candidates.take()
            if candidate is None:
                break
            with self._index.condemned(*candidate) as victim:
                # An empty file frees no blocks: it goes only where rows of the object table are wanted.
                wanted = victim is not None and (victim.blocks or freed.objects < objects)
                if victim is not None and wanted and self._remove(victim, freed):
                    last = time.monotonic()

    @property
    def protection_s(self) -> float:
        """Seconds for which a lookup protects."""
        return self._index.grace.duration_s

    def only_protected(self, owner: Owner | None = None) -> bool:
        """Whether an object (of the owner's) that frees blocks is kept from eviction by a lookup alone: in a while it
        can go. Memory only."""
        groups = None if owner is None else [owner.namespace & SLOT_MASK]
        accepts = None if owner is None else self._has_salt(owner)
        for piece in self._in_pieces(groups, accepts):
            if any(
                protected and not self._store.retention.pinned(oid) and self._blocks(oid) for oid, _, protected in piece
            ):
                return True
        return False

    def _in_pieces(
        self,
        groups: Sequence[int] | None,
        accepts: Callable[[int], bool] | None = None,
        segments: Sequence[int] = SEGMENTS,
    ) -> Iterator[list[tuple[int, int, bool]]]:
        """Every object of some groups that could ever be evicted, or of these segments: id, blocks, and whether a
        lookup protects it. The lock is held for a piece at a time, and not while the caller looks at it."""
        index, recency = self._index, self._index.segments.recency
        with index.lock:
            now = index.grace.now()
            walks = [recency.walk(name) for name in index.segments.lists(groups, segments)]
        for walk in walks:
            met = True
            while met:
                with index.lock:
                    ids = [oid for _, oid in recency.advance(walk, PROTECTED_CHUNK)]
                    found = [
                        (oid, index.usage.blocks_of(oid), index.grace.covers(oid, now))
                        for oid in ids
                        if accepts is None or accepts(oid)
                    ]
                met = bool(ids)
                yield found

    def _has_salt(self, owner: Owner) -> Callable[[int], bool] | None:
        """Which of its namespace's objects are the owner's: called with the index's lock held. None: all."""
        usage, salt = self._index.usage, owner.salt
        return None if salt is None else lambda oid: usage.has_salt(oid, salt)

    def objects_of(self, namespace: int) -> int:
        """How many objects a namespace has that could ever be evicted."""
        with self._index.lock:
            return self._index.usage.of(namespace).objects

    def kept(self, namespace: int) -> Kept:
        """What of a namespace is still there, and why. Memory only; a walk of the whole namespace, in pieces."""
        kept = Kept()
        for piece in self._in_pieces([namespace & SLOT_MASK], segments=(KEPT,)):
            kept.unsynced_objects += len(piece)
            kept.unsynced_bytes += sum(blocks for _, blocks, _ in piece) * BLOCK
        for piece in self._in_pieces([namespace & SLOT_MASK]):
            for oid, blocks, protected in piece:
                size = blocks * BLOCK
                if self._store.retention.pinned(oid):
                    kept.pinned_objects += 1
                    kept.pinned_bytes += size
                elif protected:
                    kept.protected_objects += 1
                    kept.protected_bytes += size
                else:
                    kept.other_objects += 1
                    kept.other_bytes += size
        return kept

    def _blocks(self, oid: int) -> int:
        try:
            return self._store.attributes(oid).blocks
        except HcfsError:
            return 0

    def _remove(self, victim: Victim, freed: Freed) -> bool:
        try:
            names = self._store.evict(victim.oid)
        except ReadOnlyStore:
            raise  # it holds for every object
        except HcfsError as error:
            logger.warning("object %d can't be evicted, the next one is tried: %s", victim.oid, error)
            return False
        if names is None:
            return False
        freed.names += names
        self._count(freed, victim.blocks, victim.namespace)
        return True

    def _purge(self, bad: Quarantined, freed: Freed) -> bool:
        try:
            self._store.removals.purge(bad.id)
        except ReadOnlyStore:
            raise
        except HcfsError as error:
            logger.warning("quarantined object %d can't be removed, the next one is tried: %s", bad.id, error)
            return False
        self._count(freed, bad.blocks, None)
        return True

    def _count(self, freed: Freed, blocks: int, namespace: int | None) -> None:
        freed.objects += 1
        freed.blocks += blocks
        with self._index.lock:
            self.evictions += 1
            self.evicted_bytes += blocks * BLOCK
            if namespace is not None:
                self._index.usage.count_eviction(namespace)
