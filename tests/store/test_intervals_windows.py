from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from hcfs.store.extents import Extent, blocks_of, decode_extents, encode_extents, pieces
from hcfs.store.intervals import Intervals
from hcfs.store.windows import Windows, merge

TOP = 60
ranges = st.tuples(st.integers(0, TOP), st.integers(0, 12)).map(lambda t: (t[0], t[0] + t[1]))
steps = st.lists(
    st.one_of(st.tuples(st.just("add"), ranges), st.tuples(st.sampled_from(("cut", "take")), ranges)), max_size=30
)


@given(steps, ranges)
def test_intervals_are_a_set_of_integers(steps: list[tuple[str, tuple[int, int]]], asked: tuple[int, int]) -> None:
    intervals, model = Intervals(), set[int]()
    for kind, (start, end) in steps:
        if kind == "add":
            intervals.add(start, end)
            model |= set(range(start, end))
        elif kind == "take":
            kept = list(intervals)
            first = kept[0] if kept else (0, 0)
            most = end - start + 1
            taken = intervals.take(most)
            assert taken == ((first[0], min(most, first[1] - first[0])) if kept else None)
            model -= set(range(first[0], min(first[0] + most, first[1])))
        else:
            intervals.cut(end)
            model -= {value for value in model if value >= end}
        kept = list(intervals)
        assert {value for start, end in kept for value in range(start, end)} == model
        assert all(a[1] < b[0] for a, b in itertools.pairwise(kept)), "neighbours are merged"
        assert all(start < end for start, end in kept)
        assert bool(intervals) == bool(model)
        assert intervals.total == len(model)
    assert [value in intervals for value in range(TOP + 20)] == [value in model for value in range(TOP + 20)]
    start, end = asked
    split = list(intervals.split(start, end))
    assert [(v, inside) for a, b, inside in split for v in range(a, b)] == [(v, v in model) for v in range(start, end)]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6)), max_size=20), ranges, st.lists(ranges, max_size=6))
def test_windows_map_each_block_once(
    wanted: list[tuple[int, int]], asked: tuple[int, int], written: list[tuple[int, int]]
) -> None:
    windows, model, next_block = Windows(), dict[int, int](), 1000
    for logical, count in wanted:
        for start, end in windows.gaps(logical, logical + count):
            before = windows.block_before(start)
            assert before == (model[start - 1] + 1 if start - 1 in model else None)
            following = [value for value in model if value >= start]
            assert windows.next_start(start) == min(following, default=None)
            # Half of the time the device's blocks continue, as they do for a sequential writer.
            block = before if before is not None and count % 2 else next_block
            if block != next_block and block in model.values():
                block = next_block
            windows.add(start, block, end - start)
            model |= {start + i: block + i for i in range(end - start)}
            next_block += 100
    assert windows.blocks == len(model)
    start, end = asked
    assert windows.gaps(start, end) == gaps_of(model, start, end)
    found = {e.logical + i: e.block + i for e in windows.map(start, end) for i in range(e.count)}
    assert found == {k: v for k, v in model.items() if start <= k < end}
    kept = Intervals()
    for a, b in written:
        kept.add(a, b)
    given_up = windows.trim(kept)
    left = {k: v for k, v in model.items() if k in kept}
    assert {e.logical + i: e.block + i for e in windows.extents() for i in range(e.count)} == left
    assert sorted(b + i for b, n in given_up for i in range(n)) == sorted(v for k, v in model.items() if k not in kept)
    assert windows.blocks == len(left) == blocks_of(windows.extents()) == sum(n for _, n in windows.runs())
    assert list(windows.extents()) == merge(list(windows.extents()))


def gaps_of(model: dict[int, int], start: int, end: int) -> list[tuple[int, int]]:
    gaps: list[tuple[int, int]] = []
    for value in range(start, end):
        if value not in model:
            if gaps and gaps[-1][1] == value:
                gaps[-1] = (gaps[-1][0], value + 1)
            else:
                gaps.append((value, value + 1))
    return gaps


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), max_size=8), ranges)
def test_pieces_cover_all_blocks_with_holes_named(shape: list[tuple[int, int]], asked: tuple[int, int]) -> None:
    extents, model, at = [], dict[int, int](), 0
    for number, (hole, count) in enumerate(shape):
        at += hole
        extents.append(Extent(at, 1000 * (number + 1), count))
        model |= {at + i: 1000 * (number + 1) + i for i in range(count)}
        at += count
    assert decode_extents(encode_extents(extents)) == tuple(extents)
    start, end = asked
    found = [
        (p.logical + i, p.block + i if p.block >= 0 else -1)
        for p in pieces(tuple(extents), start, end)
        for i in range(p.count)
    ]
    assert found == [(v, model.get(v, -1)) for v in range(start, end)]
