"""Which objects eviction should try next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from hcfs.cache.grace import Grace
from hcfs.cache.merge import Merge
from hcfs.cache.segments import TOO_MANY_LARGE, Segments


class Candidates:
    """Objects of some groups in the order in which they should leave, without those protected by grace.

    Where they come from is chosen anew for each: large files that pass through, while these hold more than their share;
    then all but the protected ones, then those; each time the least recently used across the groups. One that eviction
    leaves where it is, because it is pinned or can't be removed, is passed, and comes twice at most. Objects used after
    the beginning don't come, so it ends however busy the store is. An object may have been used or removed by the time
    it comes: `stamp` tells.
    """

    def __init__(
        self,
        lock: threading.Lock,
        segments: Segments,
        grace: Grace,
        groups: Collection[int] | None = None,
        accepts: Callable[[int], bool] | None = None,
    ) -> None:
        """groups: all by default. accepts: which objects may come, all by default; called with `lock` held. Takes
        `lock`, which guards segments and grace, for short moments."""
        self._accepts = accepts
        self._lock = lock
        self._segments = segments
        self._grace = grace
        self._groups = groups
        self._demotions = segments.demotions
        self._merges = self._begin()
        self._again = True

    def take(self) -> tuple[int, int] | None:
        """The next (stamp, object id), or None when there is no more."""
        while True:
            with self._lock:
                order = self._segments.order(self._groups)
            for segments in order:
                candidate = self._merges[segments].take()
                if candidate is not None:
                    return candidate
            # What lost its protection meanwhile went to the end of a list behind what this pass was to see there.
            if not self._again or self._demotions == self._segments.demotions:
                return None
            self._again = False  # Others may cause demotions all the time.
            self._merges = self._begin()

    def _begin(self) -> dict[tuple[int, ...], Merge]:
        with self._lock:
            lists = {segments: self._segments.lists(self._groups, segments) for segments in TOO_MANY_LARGE}
        return {
            segments: Merge(self._lock, self._segments.recency, self._grace, names, self._accepts)
            for segments, names in lists.items()
        }
