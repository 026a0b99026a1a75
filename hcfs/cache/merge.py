"""Objects of several lists of the recency as one, the least recently used first."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Iterable

from hcfs.cache.grace import Grace
from hcfs.cache.recency import Recency, Walk

_CHUNK = 256
"""Objects looked at while the lock is held once: some 30 us, which is what a lookup may wait."""


class Merge:
    """Objects of some of the recency's groups, least recently used first across them, without those protected by grace.

    Each comes once. Objects used after the beginning don't come, so it ends however busy the store is. An object may
    have been used or removed by the time it comes: `stamp` tells.
    """

    def __init__(
        self,
        lock: threading.Lock,
        recency: Recency,
        grace: Grace,
        groups: Iterable[int],
        accepts: Callable[[int], bool] | None = None,
    ) -> None:
        """accepts: which objects may come, all by default; called with `lock` held. Takes `lock`, which guards recency
        and grace, for short moments."""
        self._accepts = accepts
        self._lock = lock
        self._recency = recency
        self._grace = grace
        self._walks: dict[int, Walk] = {}
        self._found: dict[int, deque[tuple[int, int]]] = {}
        with lock:
            # A stamp here is at most that of the group's next candidate.
            self._next = recency.heads(groups)
            for _, group in self._next:
                self._walks[group] = recency.walk(group)
                self._found[group] = deque()
        heapq.heapify(self._next)

    def take(self) -> tuple[int, int] | None:
        """The next (stamp, object id), or None when there is no more."""
        while self._next:
            stamp, group = self._next[0]
            found = self._found[group]
            if not found and not self._refill(group):
                heapq.heappop(self._next)
            elif found[0][0] > stamp:
                heapq.heapreplace(self._next, (found[0][0], group))
            else:
                candidate = found.popleft()
                # Exactly that of the next one if it is known; else a bound, and the place is looked at again.
                heapq.heapreplace(self._next, (found[0][0] if found else stamp + 1, group))
                return candidate
        return None

    def _refill(self, group: int) -> bool:
        found = self._found[group]
        while not found:
            with self._lock:
                now, covers = self._grace.now(), self._grace.covers
                met = self._recency.advance(self._walks[group], _CHUNK)
                accepts = self._accepts
                found.extend(
                    candidate
                    for candidate in met
                    if not covers(candidate[1], now) and (accepts is None or accepts(candidate[1]))
                )
            if not met:
                return False
        return True
