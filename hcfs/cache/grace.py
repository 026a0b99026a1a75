"""Protection from eviction after a lookup, so that an object a client was told of is there when it loads it."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from math import ceil

from hcfs.cache.columns import grow
from hcfs.errors import UsageError
from hcfs.store.attributes import SLOT_MASK


class Grace:
    """Until when each slot's object is protected, in whole seconds since the mount began; 4 bytes an object.

    LMCache asks first whether a chunk exists and loads it later. The kernel answers repeated questions from its own
    cache for `entry_timeout_s` after the daemon answered one, and the daemon sees none of them: the last question may
    be that much younger than the last lookup. So protection lasts lookup_grace + entry_timeout after a lookup. A
    lookup_grace of 0 says that nobody relies on an answer, and turns all protection off.

    Not thread-safe: the caller holds the cache's lock.
    """

    def __init__(self, lookup_grace_s: float, entry_timeout_s: float, clock: Callable[[], float]) -> None:
        """clock: monotonic seconds. UsageError for a negative time."""
        for option, value in (("lookup_grace", lookup_grace_s), ("entry_timeout", entry_timeout_s)):
            if not 0 <= value < float("inf"):
                raise UsageError(f"{option}={value} is not a time: give seconds, 0 or more")
        self.duration_s = lookup_grace_s + entry_timeout_s if lookup_grace_s > 0 else 0.0
        self._clock = clock
        self._start = clock()
        self._until = array("I")

    def protect(self, oid: int) -> None:
        """Protect the object from now on for the whole duration, rounded up to a second."""
        if self.duration_s:
            slot = oid & SLOT_MASK
            grow(self._until, slot, 0)
            self._until[slot] = ceil(self._clock() - self._start + self.duration_s)

    def forget(self, oid: int) -> None:
        """End the protection of the object's slot, which has a new user."""
        slot = oid & SLOT_MASK
        if slot < len(self._until):
            self._until[slot] = 0

    def now(self) -> int:
        """The current second, for `covers`: taken once for many objects."""
        return int(self._clock() - self._start)

    def covers(self, oid: int, now: int) -> bool:
        """Whether the object is protected at the second `now`."""
        slot = oid & SLOT_MASK
        return slot < len(self._until) and self._until[slot] > now
