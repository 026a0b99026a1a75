"""Sets of integers kept as sorted, disjoint, half-open intervals."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class Intervals:
    """Half-open intervals; neighbours are merged."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._starts, self._ends, strict=True)))

    def __bool__(self) -> bool:
        return bool(self._starts)

    @property
    def total(self) -> int:
        return sum(self._ends) - sum(self._starts)

    def add(self, start: int, end: int) -> None:
        """Include [start, end)."""
        if start >= end:
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def take(self, most: int) -> tuple[int, int] | None:
        """Exclude the first interval, or the first `most` of it; (start, length), None when there is none."""
        if not self._starts:
            return None
        start, end = self._starts[0], self._ends[0]
        length = min(most, end - start)
        if start + length < end:
            self._starts[0] = start + length
        else:
            del self._starts[0], self._ends[0]
        return start, length

    def cut(self, end: int) -> None:
        """Exclude everything from `end` on."""
        keep = bisect_left(self._starts, end)
        del self._starts[keep:]
        del self._ends[keep:]
        if self._ends and self._ends[-1] > end:
            self._ends[-1] = end

    def __contains__(self, value: int) -> bool:
        index = bisect_right(self._starts, value) - 1
        return index >= 0 and value < self._ends[index]

    def split(self, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """[start, end) as (start, end, included) pieces, in order."""
        at = start
        index = bisect_right(self._ends, at)
        while at < end:
            if index >= len(self._starts) or self._starts[index] >= end:
                yield at, end, False
                return
            if self._starts[index] > at:
                yield at, self._starts[index], False
                at = self._starts[index]
            stop = min(end, self._ends[index])
            yield at, stop, True
            at = stop
            index += 1
