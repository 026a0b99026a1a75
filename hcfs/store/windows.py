"""Windows: which device blocks a staged object has, for which of its blocks; some of them not written yet."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from hcfs.store.extents import Extent
from hcfs.store.intervals import Intervals


class Windows:
    """Runs of blocks by logical position, disjoint and sorted. The staged object's locks guard it."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._extents: list[Extent] = []
        self.blocks = 0
        """Blocks held"""

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """Parts of [start, end) that no window holds."""
        gaps, at = [], start
        for extent in self.map(start, end):
            if extent.logical > at:
                gaps.append((at, extent.logical))
            at = extent.logical + extent.count
        if at < end:
            gaps.append((at, end))
        return gaps

    def map(self, start: int, end: int) -> Iterator[Extent]:
        """The held parts of [start, end), in order."""
        index = max(0, bisect_right(self._starts, start) - 1)
        while index < len(self._extents):
            extent = self._extents[index]
            index += 1
            if extent.logical >= end:
                return
            first, stop = max(start, extent.logical), min(end, extent.logical + extent.count)
            if first < stop:
                yield Extent(first, extent.block + first - extent.logical, stop - first)

    def block_before(self, logical: int) -> int | None:
        """The device block that would continue the window that ends at `logical`, if there is one."""
        index = bisect_right(self._starts, logical) - 1
        if index >= 0:
            extent = self._extents[index]
            if extent.logical + extent.count == logical:
                return extent.block + extent.count
        return None

    def next_start(self, logical: int) -> int | None:
        """Where the first window at or behind `logical` starts."""
        index = bisect_right(self._starts, logical - 1)
        return self._starts[index] if index < len(self._starts) else None

    def add(self, logical: int, block: int, count: int) -> None:
        """Hold `count` device blocks from `block` on for the blocks from `logical` on."""
        index = bisect_right(self._starts, logical)
        if index:
            previous = self._extents[index - 1]
            if previous.logical + previous.count == logical and previous.block + previous.count == block:
                self._extents[index - 1] = Extent(previous.logical, previous.block, previous.count + count)
                self.blocks += count
                return
        self._starts.insert(index, logical)
        self._extents.insert(index, Extent(logical, block, count))
        self.blocks += count

    def trim(self, written: Intervals) -> list[tuple[int, int]]:
        """Keep the written blocks only; (block, count) runs that aren't held any more."""
        kept, given = [], []
        for extent in self._extents:
            for start, stop, is_written in written.split(extent.logical, extent.logical + extent.count):
                block = extent.block + start - extent.logical
                if is_written:
                    kept.append(Extent(start, block, stop - start))
                else:
                    given.append((block, stop - start))
        self._extents = merge(kept)
        self._starts = [extent.logical for extent in self._extents]
        self.blocks = sum(extent.count for extent in self._extents)
        return given

    def extents(self) -> tuple[Extent, ...]:
        return tuple(self._extents)

    def runs(self) -> list[tuple[int, int]]:
        """(block, count) of everything held."""
        return [(extent.block, extent.count) for extent in self._extents]


def merge(extents: list[Extent]) -> list[Extent]:
    """Sorted extents with neighbours joined where both the object's and the device's blocks continue."""
    merged: list[Extent] = []
    for extent in extents:
        if merged:
            last = merged[-1]
            if last.logical + last.count == extent.logical and last.block + last.count == extent.block:
                merged[-1] = Extent(last.logical, last.block, last.count + extent.count)
                continue
        merged.append(extent)
    return merged
