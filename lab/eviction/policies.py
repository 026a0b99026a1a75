"""Eviction policies over columns, as a cache of many objects keeps them: a row an object, links that are slots.

Each is written from its authors' description: SIEVE (Zhang et al., NSDI 2024), S3-FIFO (Yang et al., SOSP 2023), 2Q
(Johnson and Shasha, VLDB 1994), segmented LRU (Karedla, Love and Wherry, 1994), Belady's farthest next use (1966).
Capacities and sizes are in MiB, times in seconds. An object that is as large as the cache isn't kept.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from functools import partial

from hcfs.cache.segments import LARGE_SHARE, Segments
from hcfs.store import BLOCK

NIL = 0xFFFFFFFF

_BLOCKS_A_MIB = (1 << 20) // BLOCK


class Queue:
    """A doubly linked list through two columns that all queues of a policy share; `head` is the oldest end."""

    def __init__(self, older: array[int], newer: array[int]) -> None:
        self.older = older
        self.newer = newer
        self.head = NIL
        self.tail = NIL
        self.size = 0

    def append(self, slot: int, size: int) -> None:
        tail = self.tail
        self.older[slot] = tail
        self.newer[slot] = NIL
        if tail == NIL:
            self.head = slot
        else:
            self.newer[tail] = slot
        self.tail = slot
        self.size += size

    def remove(self, slot: int, size: int) -> None:
        older, newer = self.older[slot], self.newer[slot]
        if older == NIL:
            self.head = newer
        else:
            self.newer[older] = newer
        if newer == NIL:
            self.tail = older
        else:
            self.older[newer] = older
        self.size -= size


class Ghosts:
    """Keys of objects that were evicted lately, first in, first out, bounded by what they would occupy."""

    row_bytes = 12
    """In columns: 8 bytes of a name's hash, 4 of a table that finds it."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self.most = 0
        self._sizes: dict[int, int] = {}

    def add(self, key: int, size: int) -> None:
        self.take(key)
        self._sizes[key] = size
        self.size += size
        while self.size > self.capacity:
            first = next(iter(self._sizes))
            self.size -= self._sizes.pop(first)
        self.most = max(self.most, len(self._sizes))

    def take(self, key: int) -> bool:
        """Whether the key is among them; it is no longer."""
        size = self._sizes.pop(key, None)
        if size is None:
            return False
        self.size -= size
        return True


class Policy(ABC):
    """What stays in a cache of `capacity`."""

    columns = 8
    """Bytes an object in columns: two links."""

    def __init__(self, capacity: int, correlated: float = 0.0) -> None:
        """correlated: a use so soon after the object was stored, or after the last use that counted, isn't another."""
        self.capacity = capacity
        self.correlated = correlated
        self.now = 0.0
        self.used = 0
        self.most = 0
        self.ghosts: Ghosts | None = None
        self._slots: dict[int, int] = {}
        self._keys = array("Q")
        self._sizes = array("Q")
        self._older = array("I")
        self._newer = array("I")
        self._marks = array("B")
        self._counted = array("d")
        self._unused: list[int] = []

    @property
    def bytes_an_object(self) -> float:
        """Columns and ghosts, over the most objects that were there at once."""
        ghosts = Ghosts.row_bytes * self.ghosts.most / max(1, self.most) if self.ghosts is not None else 0.0
        return self.columns + ghosts

    def access(self, key: int, size: int, now: float) -> bool:
        """Use the object, or store it where it is absent; whether it was there."""
        self.now = now
        slot = self._slots.get(key)
        if slot is not None:
            counts = now - self._counted[slot] > self.correlated
            if counts:
                self._counted[slot] = now
            self.hit(slot, counts)
            return True
        if size < self.capacity:
            while self.used + size > self.capacity:
                self.evict()
            slot = self._take_slot(key, size, now)
            self._slots[key] = slot
            self.used += size
            self.most = max(self.most, len(self._slots))
            self.insert(slot)
        return False

    @abstractmethod
    def hit(self, slot: int, counts: bool) -> None:
        """The object was used; `counts` is false where the use belongs to an earlier one."""

    @abstractmethod
    def insert(self, slot: int) -> None:
        """The object was stored."""

    @abstractmethod
    def evict(self) -> None:
        """Let one object go, with `drop`."""

    def drop(self, slot: int) -> None:
        self.used -= self._sizes[slot]
        del self._slots[self._keys[slot]]
        self._unused.append(slot)

    def queue(self) -> Queue:
        return Queue(self._older, self._newer)

    def _take_slot(self, key: int, size: int, now: float) -> int:
        if self._unused:
            slot = self._unused.pop()
        else:
            slot = len(self._keys)
            for column in (self._keys, self._sizes, self._older, self._newer, self._marks):
                column.append(0)
            self._counted.append(0.0)
        self._keys[slot] = key
        self._sizes[slot] = size
        self._marks[slot] = 0
        self._counted[slot] = now
        return slot


class Fifo(Policy):
    """What was stored first goes first: what any policy should beat."""

    def __init__(self, capacity: int, correlated: float = 0.0) -> None:
        super().__init__(capacity, correlated)
        self.all = self.queue()

    def hit(self, slot: int, counts: bool) -> None:
        pass

    def insert(self, slot: int) -> None:
        self.all.append(slot, 1)

    def evict(self) -> None:
        slot = self.all.head
        self.all.remove(slot, 1)
        self.drop(slot)


class Lru(Fifo):
    """Least recently used."""

    def hit(self, slot: int, counts: bool) -> None:
        if slot != self.all.tail:
            self.all.remove(slot, 1)
            self.all.append(slot, 1)


class Sieve(Fifo):
    """A hand goes from the oldest to the newest and takes the first that wasn't used since it passed; uses move
    nothing."""

    columns = 9

    def __init__(self, capacity: int, correlated: float = 0.0) -> None:
        super().__init__(capacity, correlated)
        self._hand = NIL

    def hit(self, slot: int, counts: bool) -> None:
        if counts:
            self._marks[slot] = 1

    def evict(self) -> None:
        slot = self._hand if self._hand != NIL else self.all.head
        while self._marks[slot]:
            self._marks[slot] = 0
            slot = self._newer[slot]
            if slot == NIL:
                slot = self.all.head
        self._hand = self._newer[slot]
        self.all.remove(slot, 1)
        self.drop(slot)


class S3Fifo(Policy):
    """A small queue for what is new, a main one for what was used there more than once or is known as a ghost."""

    columns = 9
    small_part = 0.1
    uses_to_main = 2

    def __init__(self, capacity: int, correlated: float = 0.0) -> None:
        super().__init__(capacity, correlated)
        self.small = self.queue()
        self.main = self.queue()
        self.ghosts = self._known = Ghosts(capacity - int(capacity * self.small_part))

    def hit(self, slot: int, counts: bool) -> None:
        # Two bits of frequency, as its authors have; bit 2 says that the object is in the main queue.
        if counts and self._marks[slot] & 3 < 3:
            self._marks[slot] += 1

    def insert(self, slot: int) -> None:
        if self._known.take(self._keys[slot]):
            self._to_main(slot)
        else:
            self.small.append(slot, self._sizes[slot])

    def _to_main(self, slot: int) -> None:
        self._marks[slot] = 4
        self.main.append(slot, self._sizes[slot])

    def evict(self) -> None:
        while True:
            if self.small.head != NIL and (self.main.head == NIL or self.small.size >= self.small_part * self.capacity):
                slot = self.small.head
                self.small.remove(slot, self._sizes[slot])
                if self._marks[slot] < self.uses_to_main:
                    self._known.add(self._keys[slot], self._sizes[slot])
                    self.drop(slot)
                    return
                self._to_main(slot)
            else:
                slot = self.main.head
                self.main.remove(slot, self._sizes[slot])
                if self._marks[slot] == 4:
                    self.drop(slot)
                    return
                self._marks[slot] -= 1
                self.main.append(slot, self._sizes[slot])


class S3FifoOne(S3Fifo):
    """The same where one use is enough for the main queue."""

    uses_to_main = 1


class TwoQ(Policy):
    """A queue for what is new, least-recently-used order for what comes back after it left that queue."""

    columns = 9
    in_part = 0.25
    out_part = 0.5

    def __init__(self, capacity: int, correlated: float = 0.0) -> None:
        super().__init__(capacity, correlated)
        self.new = self.queue()
        self.main = self.queue()
        self.ghosts = self._known = Ghosts(int(capacity * self.out_part))

    def hit(self, slot: int, counts: bool) -> None:
        if self._marks[slot]:
            self.main.remove(slot, 1)
            self.main.append(slot, 1)

    def insert(self, slot: int) -> None:
        if self._known.take(self._keys[slot]):
            self._marks[slot] = 1
            self.main.append(slot, 1)
        else:
            self.new.append(slot, self._sizes[slot])

    def evict(self) -> None:
        if self.new.head != NIL and (self.main.head == NIL or self.new.size > self.in_part * self.capacity):
            slot = self.new.head
            self.new.remove(slot, self._sizes[slot])
            self._known.add(self._keys[slot], self._sizes[slot])
        else:
            slot = self.main.head
            self.main.remove(slot, 1)
        self.drop(slot)


class SegmentedLru(Policy):
    """Two least-recently-used orders: a use moves an object to the protected one, which may hold a part of what there
    is; the first of it go back to the other, and from that one objects leave."""

    columns = 13
    """With 4 bytes for the second of the last use that counted."""

    def __init__(self, capacity: int, correlated: float = 0.0, protected_part: float = 0.8) -> None:
        super().__init__(capacity, correlated)
        self.protected_part = protected_part
        self.probation = self.queue()
        self.protected = self.queue()

    def hit(self, slot: int, counts: bool) -> None:
        size = self._sizes[slot]
        if self._marks[slot]:
            self.protected.remove(slot, size)
            self.protected.append(slot, size)
        elif not counts:
            self.probation.remove(slot, size)
            self.probation.append(slot, size)
        else:
            self.probation.remove(slot, size)
            self._marks[slot] = 1
            self.protected.append(slot, size)
            self._bound()

    def insert(self, slot: int) -> None:
        self.probation.append(slot, self._sizes[slot])

    def evict(self) -> None:
        slot = self.probation.head
        if slot == NIL:
            slot = self.protected.head
            self.protected.remove(slot, self._sizes[slot])
        else:
            self.probation.remove(slot, self._sizes[slot])
        self.drop(slot)
        self._bound()

    def _bound(self) -> None:
        """The bound is a part of what is cached, not of a capacity: a namespace has no capacity of its own."""
        while self.protected.size > self.protected_part * self.used and self.protected.head != self.protected.tail:
            slot = self.protected.head
            size = self._sizes[slot]
            self.protected.remove(slot, size)
            self._marks[slot] = 0
            self.probation.append(slot, size)


class AsShipped(Policy):
    """What hcfs does, by its own code: segmented LRU with large files set apart until they are used again."""

    columns = 13

    def __init__(self, capacity: int, correlated: float = 0.0, large_share: float = LARGE_SHARE) -> None:
        super().__init__(capacity, correlated)
        self._uses = 0
        self._ids = array("Q")
        self._segments = Segments(
            capacity << 20, lambda oid: self._sizes[oid & NIL] * _BLOCKS_A_MIB, large_share=large_share
        )

    def hit(self, slot: int, counts: bool) -> None:
        self._segments.touch(self._ids[slot], int(self.now))

    def insert(self, slot: int) -> None:
        self._uses += 1
        if slot == len(self._ids):
            self._ids.append(0)
        self._ids[slot] = self._uses << 32 | slot
        self._segments.add(self._ids[slot], 1, self._sizes[slot] * _BLOCKS_A_MIB, int(self.now))

    def evict(self) -> None:
        recency = self._segments.recency
        for segments in self._segments.order(None):
            heads = recency.heads(self._segments.lists(None, segments))
            if heads:
                oid = recency.oldest(min(heads)[1])
                assert oid is not None
                self._segments.remove(oid)
                self.drop(oid & NIL)
                return


class Farthest(Policy):
    """Belady's: what will be used last, or never, goes first. No real policy can know that; sizes are ignored."""

    columns = 0

    def __init__(self, capacity: int, correlated: float = 0.0) -> None:
        super().__init__(capacity, correlated)
        self.next_use = 0
        self._next = array("Q")
        self._heap: list[tuple[int, int]] = []

    def hit(self, slot: int, counts: bool) -> None:
        self.insert(slot)

    def insert(self, slot: int) -> None:
        while len(self._next) <= slot:
            self._next.append(0)
        self._next[slot] = self.next_use
        heapq.heappush(self._heap, (-self.next_use, slot))

    def evict(self) -> None:
        while True:
            when, slot = heapq.heappop(self._heap)
            if self._next[slot] == -when and self._slots.get(self._keys[slot]) == slot:
                self.drop(slot)
                return


POLICIES: dict[str, Callable[[int, float], Policy]] = {
    "fifo": Fifo,
    "lru": Lru,
    "sieve": Sieve,
    "s3fifo": S3Fifo,
    "s3fifo-1": S3FifoOne,
    "2q": TwoQ,
    "slru-80": SegmentedLru,
    "slru-50": partial(SegmentedLru, protected_part=0.5),
    "slru-35": partial(SegmentedLru, protected_part=0.35),
    "slru-20": partial(SegmentedLru, protected_part=0.2),
    "hcfs": AsShipped,
    "hcfs-5": partial(AsShipped, large_share=0.05),
    "hcfs-10": partial(AsShipped, large_share=0.1),
    "hcfs-40": partial(AsShipped, large_share=0.4),
    "belady": Farthest,
}
"""Those of the authors' descriptions with the authors' parameters; slru-N protects N % of what is
cached; hcfs-N lets large files have N %."""


def next_uses(keys: Sequence[int]) -> array[int]:
    """For each position, where its key comes next; past the end when it doesn't."""
    following = array("Q", bytes(8 * len(keys)))
    seen: dict[int, int] = {}
    for position in range(len(keys) - 1, -1, -1):
        following[position] = seen.get(keys[position], len(keys) + position)
        seen[keys[position]] = position
    return following
