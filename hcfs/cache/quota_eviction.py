"""Eviction for quotas: inside one namespace, or one salt of it, and nowhere else."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hcfs.cache.quotas import Quotas, Shortage
from hcfs.cache.usage import Owner
from hcfs.cache.victims import EVERYTHING, Freed, Names, Victims
from hcfs.store import BLOCK, Store

BATCH_OBJECTS = 128
"""Evicted in the background at once: some milliseconds, after which a waiting writer has its turn."""

PATIENT = 8
"""Writers that wait for the end of protection at once, for all quotas together: half of those that a mount serves at
once, so that a full namespace holds up nobody else's writes."""


class QuotaEviction:
    """Evicts an owner's own objects, in whichever thread needs it.

    What is evicted counts for nobody at once, so no pass waits for a commit. The methods are called from any thread
    that holds no lock. `on_evicted` is called in that thread with the names that went, while no lock is held.
    """

    def __init__(
        self,
        store: Store,
        quotas: Quotas,
        victims: Victims,
        turn: threading.Lock,
        on_evicted: Callable[[Names], None],
        wait: Callable[[Callable[[], bool], Callable[[], bool]], bool],
    ) -> None:
        """turn: of passes of eviction, one at a time. wait: Eviction.patiently."""
        self._store = store
        self._quotas = quotas
        self._victims = victims
        self._turn = turn
        self._on_evicted = on_evicted
        self._wait = wait
        self._patience = threading.Semaphore(PATIENT)

    def make_room(self, owner: Owner, blocks: int, *, moved: bool = False) -> bool:
        """Evict of the owner's objects, least recently used first, until its quotas have room for so many more blocks.

        True when something went, here or by another thread meanwhile. False within a second when nothing of its own can
        be evicted, and at once, with nothing evicted, when what is staged leaves no room for it anyhow. Where only
        lookups protect what could be evicted it waits for the end of that, as Eviction.make_room does, unless PATIENT
        others wait for quotas already. moved: see
        Quotas.shortage. Raises ReadOnlyStore.
        """

        def shortage() -> Shortage | None:
            with self._store.atomically():
                return self._quotas.shortage(owner, blocks, moved=moved)

        def attempt() -> bool:
            freed = self._pass(shortage)
            return freed is None or freed.objects > 0

        def hopeful() -> bool:
            short = shortage()
            return short is None or self._victims.only_protected(short.owner)

        with self._store.atomically():
            possible = self._quotas.fits_alone(owner, blocks, moved=moved)
        if not possible:
            return False
        if attempt():
            return True
        if not hopeful() or not self._patience.acquire(blocking=False):
            return False
        try:
            return self._wait(attempt, hopeful)
        finally:
            self._patience.release()

    def evict_excess(self, namespace: int) -> int:
        """Evict until the namespace and its salts are within their quotas, or no more can go; bytes freed. What is
        pinned or protected is left to the next call."""
        total = 0
        # Taken out first: a quota that is set meanwhile puts it back.
        self._quotas.changed.discard(namespace)
        while freed := self._pass(lambda: self._excess(namespace), limit=BATCH_OBJECTS):
            if not freed.objects:
                self._quotas.changed.add(namespace)
                break
            total += freed.blocks
        return total * BLOCK

    def _excess(self, namespace: int) -> Shortage | None:
        with self._store.atomically():
            return self._quotas.excess(namespace)

    def _pass(self, find: Callable[[], Shortage | None], limit: int = EVERYTHING) -> Freed | None:
        """Evict what is short when its turn has come; None when nothing is, any more."""
        freed = Freed()
        try:
            with self._turn:
                shortage = find()
                if shortage is None:
                    return None
                wanted = shortage.blocks + shortage.spare
                self._victims.evict(freed, blocks=wanted, limit=limit, owner=shortage.owner)
            return freed
        finally:
            if freed.names:
                self._on_evicted(freed.names)
