"""Who evicts when: writers that find no room, the background between two watermarks, administrators."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hcfs.cache.victims import Freed, Names, Victims
from hcfs.cache.watermarks import Watermarks
from hcfs.errors import HcfsError
from hcfs.store import BLOCK, Store
from hcfs.store.attributes import SLOT_MASK

BATCH_OBJECTS = 128
"""Evicted in the background between two commits: some milliseconds, after which a waiting writer has its turn."""

FOREGROUND_PART = 256
FOREGROUND_BLOCKS_MAX = (64 << 20) // BLOCK
"""A writer that has to wait frees capacity / FOREGROUND_PART for others too, at most FOREGROUND_BLOCKS_MAX: each commit
costs two flushes of the device, and where one writer ran out of space the next ones will."""

FOREGROUND_OBJECTS = 64
"""Evicted at once where a row of the object table is wanted, for the same reason."""


@dataclass(slots=True)
class _Round:
    """Writers that wait for room together: the first of them evicts for all that came before its turn began."""

    blocks: int = 0
    objects: int = 0
    freed: bool = False
    error: HcfsError | None = None
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class EvictedObjects:
    """What was evicted."""

    objects: int
    nbytes: int
    """Whole blocks that they occupied."""


PROTECTED_POLL_S = 0.25
PROTECTED_SPARE_S = 2.0
"""Protection ends at whole seconds, rounded up"""


class Eviction:
    """Frees space, in whichever thread needs it, one pass at a time.

    Every public method blocks for device writes and flushes (each pass ends with a commit, since only then are the
    freed blocks reusable), is called from any thread that holds no lock, and raises what the store's commit raises.
    `on_evicted` is called in that thread with the names that went, while no lock is held.
    """

    def __init__(
        self,
        store: Store,
        victims: Victims,
        watermarks: Watermarks,
        on_evicted: Callable[[Names], None],
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        """clock: monotonic seconds, those of the grace. sleep: waits for so many of them."""
        self._store = store
        self._victims = victims
        self._watermarks = watermarks
        self._on_evicted = on_evicted
        self._clock = clock
        self._sleep = sleep
        self.turn = threading.Lock()
        """Held by whoever evicts."""
        self._rounds = threading.Lock()
        self._round: _Round | None = None

    def make_room(self, blocks: int) -> bool:
        """Free `blocks` blocks, or for 0 some rows of the object table.

        True when something became free, here or by another thread meanwhile, so that it is worth trying again. False
        within a second when nothing can be evicted. Where only lookups protect what could be, a writer of blocks waits
        for the end of that, at most as long as one lookup protects: late is better than failed, and a client that was
        told of an object must find it.
        """
        return self.patiently(lambda: self._make_room(blocks), lambda: bool(blocks) and self._victims.only_protected())

    def patiently(self, attempt: Callable[[], bool], hopeful: Callable[[], bool]) -> bool:
        """Attempt again and again while `hopeful` says that only lookups protect, at most as long as one does."""
        deadline = self._clock() + self._victims.protection_s + PROTECTED_SPARE_S
        while not attempt():
            if self._clock() > deadline or not hopeful():
                return False
            self._sleep(PROTECTED_POLL_S)
        return True

    def _make_room(self, blocks: int) -> bool:
        with self._rounds:
            leads = self._round is None
            if self._round is None:
                self._round = _Round()
            mine = self._round
            mine.blocks += blocks
            mine.objects += 0 if blocks else FOREGROUND_OBJECTS
        if leads:
            self._lead(mine)
        else:
            mine.done.wait()
        if mine.error is not None:
            raise mine.error
        return mine.freed

    def evict_to_watermark(self) -> int:
        """When more than the high watermark is occupied, evict down to the low one, in batches; bytes freed."""
        if not self._watermarks.over_high():
            return 0
        if self._store.durability.commit_pending():
            # What deletions freed may only wait for its record to be durable.
            self._store.commit()
            if not self._watermarks.over_high():
                return 0
        total = 0
        while excess := self._watermarks.over_low():
            freed = self._batch(excess.blocks, excess.objects)
            if not freed.objects:
                break
            total += freed.blocks
            waiting = self._round
            if waiting is not None:
                # A writer goes first. Without this, the turn is often taken again before it wakes up.
                waiting.done.wait()
        return total * BLOCK

    def evict_namespace(
        self, namespace: int, nbytes: int | None, stop: Callable[[], bool] = lambda: False
    ) -> EvictedObjects:
        """Evict least recently used objects of one namespace until `nbytes` are freed, with None as many
        objects as there are and can be evicted, or until `stop()` is true, which is asked between two batches."""
        # As many as there are, not all: beside busy writers that would never end.
        wanted, rows = (0, self._victims.objects_of(namespace)) if nbytes is None else (-(-nbytes // BLOCK), 0)
        blocks = objects = 0
        while (blocks < wanted or objects < rows) and not stop():
            freed = self._batch(wanted - blocks, rows - objects, [namespace & SLOT_MASK])
            if not freed.objects:
                break
            blocks += freed.blocks
            objects += freed.objects
        return EvictedObjects(objects, blocks * BLOCK)

    def _lead(self, mine: _Round) -> None:
        freed = Freed()
        try:
            waited = not self.turn.acquire(blocking=False)
            if waited:
                self.turn.acquire()
            try:
                with self._rounds:
                    self._round = None
                mine.freed = self._for_round(mine, freed, waited)
            finally:
                self.turn.release()
        except HcfsError as error:
            mine.error = error
        finally:
            mine.done.set()
            self._tell(freed)

    def _for_round(self, mine: _Round, freed: Freed, waited: bool) -> bool:
        """Whether there is more room now than when the writers asked."""
        store = self._store
        before = store.usage()
        blocks, objects = mine.blocks, mine.objects
        if blocks:
            spare = min(before.capacity // BLOCK // FOREGROUND_PART, FOREGROUND_BLOCKS_MAX)
            blocks = max(blocks, spare)
        if not objects and before.free >= mine.blocks * BLOCK:
            if waited:
                return True  # by the pass it waited for
            # Enough became free since the store looked, or its need isn't one of blocks: one object helps in any case.
            blocks, objects = 0, 1
        self._victims.evict(freed, blocks=blocks, objects=objects)
        if freed.objects:
            store.commit()
        return freed.objects > 0 or store.usage().free > before.free

    def _batch(self, blocks: int, objects: int, groups: Sequence[int] | None = None) -> Freed:
        freed = Freed()
        try:
            with self.turn:
                self._victims.evict(freed, blocks=blocks, objects=objects, limit=BATCH_OBJECTS, groups=groups)
                if freed.objects:
                    self._store.commit()
        finally:
            self._tell(freed)
        return freed

    def _tell(self, freed: Freed) -> None:
        if freed.names:
            self._on_evicted(freed.names)
