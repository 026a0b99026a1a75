"""The allocator: which blocks of the data area are free. Memory only; not thread-safe: the store's lock guards it."""

from __future__ import annotations

from collections.abc import Iterable

from sortedcontainers import SortedDict, SortedList


class Overlap(Exception):
    """Blocks that are given back, or claimed, twice: (block, count)."""


class Allocator:
    """Free runs of blocks, by position and by length.

    Best fit, the lowest of equals: the smallest run that holds the whole request, so that long runs stay long for large
    objects; where no run is long enough, the longest ones first, so that an object gets few extents."""

    def __init__(self, start: int, blocks: int, free: list[tuple[int, int]] | None = None) -> None:
        """free: the free (block, count) runs, sorted by block; None for all."""
        runs = free if free is not None else [(start, blocks)] if blocks else []
        self.start = start
        self.blocks = blocks
        self.free_blocks = sum(count for _, count in runs)
        self._by_block: SortedDict[int, int] = SortedDict(runs)
        self._by_length: SortedList[tuple[int, int]] = SortedList((count, block) for block, count in runs)

    @classmethod
    def without(cls, start: int, blocks: int, used: Iterable[tuple[int, int]]) -> Allocator:
        """An allocator in which the (block, count) runs, sorted by block, are taken. Raises Overlap."""
        runs = []
        at = start
        for block, count in used:
            if block < at or block + count > start + blocks:
                raise Overlap(block, count)
            if block > at:
                runs.append((at, block - at))
            at = block + count
        if at < start + blocks:
            runs.append((at, start + blocks - at))
        return cls(start, blocks, runs)

    @property
    def runs(self) -> int:
        """How many free runs there are."""
        return len(self._by_block)

    @property
    def largest_run(self) -> int:
        """Blocks in the longest free run."""
        return int(self._by_length[-1][0]) if self._by_length else 0

    def free_runs(self) -> list[tuple[int, int]]:
        """(block, count) of each free run, by position."""
        return list(self._by_block.items())

    def _remove(self, block: int, count: int) -> None:
        del self._by_block[block]
        self._by_length.remove((count, block))

    def _insert(self, block: int, count: int) -> None:
        self._by_block[block] = count
        self._by_length.add((count, block))

    def take_at(self, block: int, count: int) -> int:
        """Take up to `count` blocks that start exactly at `block`; how many were free there, 0 if none."""
        length: int | None = self._by_block.get(block)
        if length is None:
            return 0
        self._remove(block, length)
        taken = min(length, count)
        if length > taken:
            self._insert(block + taken, length - taken)
        self.free_blocks -= taken
        return taken

    def take(self, count: int) -> list[tuple[int, int]] | None:
        """Take `count` blocks: (block, count) runs, one wherever possible; None, and nothing taken, if too few are
        free."""
        if count > self.free_blocks:
            return None
        taken: list[tuple[int, int]] = []
        while count:
            fit = self._by_length.bisect_left((count, 0))
            length, block = self._by_length[fit if fit < len(self._by_length) else -1]
            part = self.take_at(block, min(count, length))
            taken.append((block, part))
            count -= part
        return taken

    def take_within(self, block: int, count: int) -> list[tuple[int, int]]:
        """Take what is free of the `count` blocks from `block` on: (block, count) runs."""
        end, taken = block + count, []
        keys = self._by_block.keys()
        at = max(0, self._by_block.bisect_right(block) - 1)
        while at < len(keys) and keys[at] < end:
            start = keys[at]
            stop = start + self._by_block[start]
            first, last = max(start, block), min(stop, end)
            if first >= last:
                at += 1
                continue
            self._remove(start, stop - start)
            if start < first:
                self._insert(start, first - start)
                at += 1
            if last < stop:
                self._insert(last, stop - last)
            self.free_blocks -= last - first
            taken.append((first, last - first))
        return taken

    def give(self, block: int, count: int) -> None:
        """Return a run. Raises Overlap when a part of it is free already or outside the data area."""
        if count <= 0 or block < self.start or block + count > self.start + self.blocks:
            raise Overlap(block, count)
        after = self._by_block.bisect_right(block)
        keys = self._by_block.keys()
        merged_block, merged_count = block, count
        if after < len(keys):
            next_block = keys[after]
            if next_block < block + count:
                raise Overlap(block, count)
            if next_block == block + count:
                next_count = self._by_block[next_block]
                self._remove(next_block, next_count)
                merged_count += next_count
        if after > 0:
            previous = keys[after - 1]
            length = self._by_block[previous]
            if previous + length > block:
                raise Overlap(block, count)
            if previous + length == block:
                self._remove(previous, length)
                merged_block, merged_count = previous, merged_count + length
        self._insert(merged_block, merged_count)
        self.free_blocks += count
