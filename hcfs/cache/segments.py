"""Segmented LRU: which of a namespace's objects have shown that they are used again, and who leaves before whom.

docs/eviction.md compares it with other policies and argues the constants.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection

from hcfs.cache.columns import grow
from hcfs.cache.recency import Recency
from hcfs.store import BLOCK
from hcfs.store.attributes import SLOT_MASK

LARGE = 0
"""Large files that weren't used again since they were stored: weights that pass through."""
PROBATION = 1
"""Other objects that weren't used again, and those that came back from the protected ones."""
PROTECTED = 2
"""Objects that were used again."""
SEGMENTS = (LARGE, PROBATION, PROTECTED)
KEPT = 3
"""Objects that must not go: no order of eviction has this one, so no pass walks through them."""

FEW_LARGE = ((LARGE, PROBATION), (PROTECTED,))
TOO_MANY_LARGE = ((LARGE,), *FEW_LARGE)
"""From where objects leave."""

LARGE_MAX = 256 << 20
LARGE_PART = 256
"""A file is large from capacity / LARGE_PART bytes on, or LARGE_MAX if that is less: above KV chunks, below weights."""

LARGE_SHARE = 0.20
"""Part of the used blocks above which the large files go first."""
PROTECTED_SHARE = 0.35
"""Most of a namespace's blocks that are protected."""

ONE_USE_S = 60
"""Uses so soon after one that counted, or after the storing, belong to it: a client looks up, then opens."""
LARGE_ONE_USE_S = 600
"""The same after a large file was stored: weights are copied, and then loaded, by several processes each."""

DEMOTIONS_AT_ONCE = 64
"""Objects moved while the lock is held once: some 60 us. What is over the share stays so until the next change."""


class Segments:
    """Three least-recently-used orders a group (a namespace's slot), and how much is in each.

    5 bytes an object beside the recency's. Constant time. Not thread-safe: the caller holds the cache's lock.
    """

    def __init__(self, capacity: int, blocks_of: Callable[[int], int], *, large_share: float = LARGE_SHARE) -> None:
        """capacity: of the store, bytes. blocks_of: of an object that was added. large_share: what other value than the
        default is for comparisons."""
        self.recency = Recency()
        self.demotions = 0
        """Objects that lost their protection so far."""
        self._blocks_of = blocks_of
        self._large_share = large_share
        self._large_blocks = max(1, min(LARGE_MAX, capacity // LARGE_PART) // BLOCK)
        self._blocks: dict[int, list[int]] = {}
        self._none = [0] * (KEPT + 1)
        self._total = list(self._none)
        self._segments = array("B")
        self._counts_from = array("I")

    def __contains__(self, oid: int) -> bool:
        return oid in self.recency

    def add(self, oid: int, group: int, blocks: int, now: int, *, kept: bool = False) -> None:
        """A new object, or one that was removed just now and comes back, as when it is renamed: that keeps its segment.

        now: seconds, as for `touch`. kept: it must not go, before `let_go` says that it may."""
        slot = oid & SLOT_MASK
        if not self.recency.was_last_in_slot(oid):
            if blocks >= self._large_blocks:
                self._enter(slot, LARGE, now + LARGE_ONE_USE_S)
            else:
                self._enter(slot, PROBATION, now + ONE_USE_S)
        if kept:
            self._segments[slot] = KEPT
        segment = self._segments[slot]
        self.recency.add(oid, _list(group, segment))
        self._count(group, segment, blocks)
        self._bound(group)

    def let_go(self, oid: int) -> None:
        """The object, which was kept, may go from now on, as one that was just stored. Nothing for any other."""
        found = self.recency.group_of(oid)
        if found is None or found & 3 != KEPT:
            return
        blocks = self._blocks_of(oid)
        self._move(oid, found >> 2, KEPT, LARGE if blocks >= self._large_blocks else PROBATION, blocks)

    def kept_blocks(self, group: int | None = None) -> int:
        """Blocks of what must not go, in a group or in all."""
        return self._total[KEPT] if group is None else self._blocks.get(group, self._none)[KEPT]

    def load(self, oid: int, group: int, blocks: int, in_use_s: float, *, kept: bool = False) -> None:
        """An object from before the mount, used later than all loaded before it, and in_use_s seconds after it was
        stored; `end_load` follows the last one."""
        used_again = in_use_s > (LARGE_ONE_USE_S if blocks >= self._large_blocks else ONE_USE_S)
        segment = LARGE if blocks >= self._large_blocks and not used_again else PROBATION
        if kept:
            segment, used_again = KEPT, False
        # PROTECTED is a mark here that `end_load` looks at; the object is in the list of those on probation.
        self._enter(oid & SLOT_MASK, PROTECTED if used_again else segment, 0)
        self.recency.add(oid, _list(group, segment))
        self._count(group, segment, blocks)

    def end_load(self) -> None:
        """Protect the latest of what was loaded as used again, as far as the share goes."""
        for group, counts in self._blocks.items():
            left = int(PROTECTED_SHARE * sum(counts))
            for oid in self.recency.latest_first(_list(group, PROBATION)):
                slot = oid & SLOT_MASK
                if self._segments[slot] != PROTECTED:
                    continue
                blocks = self._blocks_of(oid)
                left -= blocks
                if left < 0:
                    self._segments[slot] = PROBATION
                    continue
                self.recency.move_to_front(oid, _list(group, PROTECTED))
                self._count(group, PROBATION, -blocks)
                self._count(group, PROTECTED, blocks)

    def touch(self, oid: int, now: int) -> bool:
        """The object was used at the second `now`; False when it isn't there."""
        found = self.recency.group_of(oid)
        if found is None:
            return False
        slot = oid & SLOT_MASK
        again = now >= self._counts_from[slot]
        if again:
            self._counts_from[slot] = now + ONE_USE_S
        segment = found & 3
        if segment in (PROTECTED, KEPT) or not again:
            return self.recency.touch(oid)
        blocks, group = self._blocks_of(oid), found >> 2
        self._move(oid, group, segment, PROTECTED, blocks)
        self._bound(group)
        return True

    def remove(self, oid: int) -> None:
        """The object, which is there, leaves."""
        found = self.recency.group_of(oid)
        assert found is not None
        self.recency.remove(oid)
        group = found >> 2
        self._count(group, found & 3, -self._blocks_of(oid))
        self._bound(group)

    def group_of(self, oid: int) -> int | None:
        """The group that has the object, if any."""
        found = self.recency.group_of(oid)
        return None if found is None else found >> 2

    def order(self, groups: Collection[int] | None) -> tuple[tuple[int, ...], ...]:
        """The segments from which objects of these groups (None: of all) should leave: the first ones first, the least
        recently used of those that stand together."""
        counts = [self._total] if groups is None else [self._blocks[group] for group in groups if group in self._blocks]
        large, used = sum(count[LARGE] for count in counts), sum(map(sum, counts))
        return TOO_MANY_LARGE if large > self._large_share * used else FEW_LARGE

    def lists(self, groups: Collection[int] | None, segments: Collection[int]) -> list[int]:
        """Names of the recency's lists that hold these segments of these groups (None: of all)."""
        return [_list(group, segment) for group in (self._blocks if groups is None else groups) for segment in segments]

    def _enter(self, slot: int, segment: int, counts_from: int) -> None:
        if slot >= len(self._segments):
            grow(self._segments, slot, 0)
            grow(self._counts_from, slot, 0)
        self._segments[slot] = segment
        self._counts_from[slot] = counts_from

    def _count(self, group: int, segment: int, blocks: int) -> None:
        counts = self._blocks.get(group)
        if counts is None:
            counts = self._blocks[group] = list(self._none)
        counts[segment] += blocks
        self._total[segment] += blocks

    def _move(self, oid: int, group: int, old: int, new: int, blocks: int) -> None:
        self.recency.add(oid, _list(group, new))
        self._segments[oid & SLOT_MASK] = new
        self._count(group, old, -blocks)
        self._count(group, new, blocks)

    def _bound(self, group: int) -> None:
        """Give protection up, the least recently used first, while there is more of it than the share."""
        counts = self._blocks[group]
        for _ in range(DEMOTIONS_AT_ONCE):
            if counts[PROTECTED] <= PROTECTED_SHARE * sum(counts):
                return
            oid = self.recency.oldest(_list(group, PROTECTED))
            if oid is None:
                return
            self._move(oid, group, PROTECTED, PROBATION, self._blocks_of(oid))
            self.demotions += 1


def _list(group: int, segment: int) -> int:
    """What the recency calls a group: one segment of a namespace."""
    return group << 2 | segment
