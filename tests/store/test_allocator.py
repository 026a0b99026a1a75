from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcfs.store.allocator import Allocator, Overlap

START, BLOCKS = 100, 64
step = st.tuples(st.sampled_from(("take", "give", "at", "within")), st.integers(0, 200), st.integers(1, 30))


def runs_of(free: set[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for block in sorted(free):
        if runs and sum(runs[-1]) == block:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((block, 1))
    return runs


@given(st.lists(step, max_size=60))
def test_allocator_is_a_set_of_free_blocks(steps: list[tuple[str, int, int]]) -> None:
    allocator, free = Allocator(START, BLOCKS), set(range(START, START + BLOCKS))
    taken: list[tuple[int, int]] = []
    for kind, which, count in steps:
        if kind == "take":
            fits = [n for _, n in runs_of(free) if n >= count]
            got = allocator.take(count)
            if got is None:
                assert count > len(free)
                continue
            assert sum(n for _, n in got) == count
            if fits:
                assert len(got) == 1, "one run where one is long enough"
                whole = next(run for run in runs_of(free) if run[0] == got[0][0])
                assert whole[1] == min(fits), "the shortest that fits"
            for block, n in got:
                assert free >= set(range(block, block + n))
                free -= set(range(block, block + n))
            taken += got
        elif kind == "at":
            block = START + which % BLOCKS
            n = allocator.take_at(block, count)
            starts = dict(runs_of(free))
            assert n == min(count, starts.get(block, 0))
            free -= set(range(block, block + n))
            if n:
                taken.append((block, n))
        elif kind == "within":
            wanted = set(range(START + which % BLOCKS, START + which % BLOCKS + count))
            got = allocator.take_within(min(wanted), count)
            assert got == runs_of(free & wanted)
            free -= wanted
            taken += got
        elif taken:
            block, n = taken.pop(which % len(taken))
            part = min(count, n)
            allocator.give(block, part)
            free |= set(range(block, block + part))
            if part < n:
                taken.append((block + part, n - part))
        assert allocator.free_runs() == runs_of(free)
        assert allocator.free_blocks == len(free)
        assert allocator.runs == len(runs_of(free))
        assert allocator.largest_run == max((n for _, n in runs_of(free)), default=0)
    assert Allocator.without(START, BLOCKS, sorted(taken)).free_runs() == allocator.free_runs()


def test_where_no_run_is_long_enough_the_longest_come_first() -> None:
    allocator = Allocator.without(0, 20, [(3, 2), (10, 2)])
    assert allocator.free_runs() == [(0, 3), (5, 5), (12, 8)]
    assert allocator.take(12) == [(12, 8), (5, 4)]


@pytest.mark.parametrize("block", [START - 1, START + BLOCKS - 2, START + 10, START + 7])
def test_blocks_given_back_twice_or_from_outside_are_refused(block: int) -> None:
    allocator = Allocator.without(START, BLOCKS, [(START + 8, 2)])
    with pytest.raises(Overlap):
        allocator.give(block, 3)
    assert allocator.free_blocks == BLOCKS - 2


def test_nothing_is_not_a_run() -> None:
    with pytest.raises(Overlap):
        Allocator(START, BLOCKS).give(START, 0)


@pytest.mark.parametrize("used", [[(START - 1, 2)], [(START, 4), (START + 3, 1)], [(START + BLOCKS - 1, 2)]])
def test_used_runs_that_overlap_are_refused(used: list[tuple[int, int]]) -> None:
    with pytest.raises(Overlap):
        Allocator.without(START, BLOCKS, used)


def test_a_full_device_has_no_runs() -> None:
    allocator = Allocator.without(START, BLOCKS, [(START, BLOCKS)])
    assert (allocator.runs, allocator.largest_run, allocator.free_blocks) == (0, 0, 0)
    assert allocator.take(1) is None
    assert Allocator(START, 0).take(1) is None
