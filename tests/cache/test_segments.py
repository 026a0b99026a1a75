"""Which objects count as used again, and how much of a namespace they may hold."""

from __future__ import annotations

from time import perf_counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hcfs.cache.segments import (
    DEMOTIONS_AT_ONCE,
    KEPT,
    LARGE,
    LARGE_MAX,
    LARGE_ONE_USE_S,
    LARGE_PART,
    ONE_USE_S,
    PROBATION,
    PROTECTED,
    PROTECTED_SHARE,
    SEGMENTS,
    Segments,
)
from hcfs.store import BLOCK

from .conftest import Rig

LARGE_BLOCKS = 100


class Table:
    """Segments whose large files begin at LARGE_BLOCKS."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.segments = Segments(LARGE_BLOCKS * BLOCK * LARGE_PART, lambda oid: self.sizes[oid])

    def add(self, oid: int, group: int = 1, blocks: int = 1, now: int = 0) -> None:
        self.sizes[oid] = blocks
        self.segments.add(oid, group, blocks, now)

    def load(self, oid: int, group: int, blocks: int, in_use_s: float) -> None:
        self.sizes[oid] = blocks
        self.segments.load(oid, group, blocks, in_use_s)

    def of(self, segment: int, group: int = 1) -> list[int]:
        """The segment's objects, the least recently used first."""
        recency = self.segments.recency
        (name,) = self.segments.lists([group], [segment])
        return [oid for _, oid in recency.advance(recency.walk(name), 1 << 20)]

    def blocks(self, segment: int, group: int = 1) -> int:
        return sum(self.sizes[oid] for oid in self.of(segment, group))


def test_a_use_counts_when_it_is_not_part_of_an_earlier_one() -> None:
    table = Table()
    for oid in range(2, 12):
        table.add(oid, now=100)
    table.segments.touch(2, 100 + ONE_USE_S - 1)
    assert table.of(PROTECTED) == []
    assert table.of(PROBATION) == [*range(3, 12), 2]
    table.segments.touch(2, 100 + ONE_USE_S)
    assert table.of(PROTECTED) == [2]


def test_a_large_file_is_set_apart_until_it_is_used_long_after_it_was_stored() -> None:
    table = Table()
    for oid in range(2, 12):
        table.add(oid, blocks=LARGE_BLOCKS - 1)
    table.add(12, blocks=LARGE_BLOCKS)
    table.segments.touch(12, LARGE_ONE_USE_S - 1)
    assert table.of(LARGE) == [12]
    table.segments.touch(12, LARGE_ONE_USE_S)
    assert table.of(LARGE) == []
    assert table.of(PROTECTED) == [12]


@pytest.mark.parametrize(("capacity", "large"), [(1 << 30, 4 << 20), (1 << 40, LARGE_MAX), (8 << 40, LARGE_MAX)])
def test_large_is_a_part_of_a_small_device_and_a_size_on_others(capacity: int, large: int) -> None:
    sizes = {2: large // BLOCK, 3: large // BLOCK - 1}
    segments = Segments(capacity, sizes.__getitem__)
    for oid, blocks in sizes.items():
        segments.add(oid, 1, blocks, 0)
    assert segments.recency.heads(segments.lists(None, [LARGE])) == [(1, 1 << 2 | LARGE)]
    assert segments.recency.oldest(1 << 2 | PROBATION) == 3


def test_the_first_of_the_protected_make_room_for_the_next() -> None:
    table = Table()
    for oid in range(2, 102):
        table.add(oid)
    for oid in range(2, 102):
        table.segments.touch(oid, ONE_USE_S)
    assert table.of(PROTECTED) == list(range(102 - int(100 * PROTECTED_SHARE), 102))
    assert table.of(PROBATION) == list(range(2, 102 - int(100 * PROTECTED_SHARE)))


def test_protection_shrinks_with_its_namespace() -> None:
    table = Table()
    for oid in range(2, 102):
        table.add(oid)
        table.add(1000 + oid, group=2)
    for oid in range(2, 102):
        table.segments.touch(oid, ONE_USE_S)
        table.segments.touch(1000 + oid, ONE_USE_S)
    other = table.of(PROTECTED, 2)
    for _ in range(80):
        table.segments.remove(table.of(PROBATION)[0])
    assert len(table.of(PROTECTED)) == 20 * PROTECTED_SHARE
    assert table.of(PROTECTED, 2) == other


def test_one_object_that_comes_back_moves_few_others_at_once() -> None:
    table = Table()
    for oid in range(2, 1002):
        table.add(oid)
    for oid in range(2, 352):
        table.segments.touch(oid, ONE_USE_S)
    table.add(2000, blocks=340)
    protected = len(table.of(PROTECTED))
    table.segments.touch(2000, LARGE_ONE_USE_S)
    assert protected + 1 - len(table.of(PROTECTED)) == DEMOTIONS_AT_ONCE
    for _ in range(10):
        table.segments.touch(table.of(PROBATION)[0], LARGE_ONE_USE_S)
    assert table.blocks(PROTECTED) <= PROTECTED_SHARE * 1340


def test_a_rename_keeps_the_segment_and_a_new_user_of_the_slot_does_not() -> None:
    table = Table()
    for oid in range(2, 12):
        table.add(oid)
    table.segments.touch(5, ONE_USE_S)
    table.segments.remove(5)
    table.add(5, group=1, now=ONE_USE_S)
    assert table.of(PROTECTED) == [5]
    table.segments.remove(5)
    table.add(1 << 32 | 5, now=ONE_USE_S)
    assert table.of(PROTECTED) == []


def test_what_was_used_again_before_a_mount_is_protected_after_it_the_latest_first() -> None:
    table = Table()
    for oid in range(2, 102):
        table.load(oid, 1, 1, ONE_USE_S + 1 if oid % 2 else 0)
    table.load(102, 1, LARGE_BLOCKS, LARGE_ONE_USE_S)
    table.load(103, 1, LARGE_BLOCKS, LARGE_ONE_USE_S + 1)
    table.segments.end_load()
    assert table.of(LARGE) == [102]
    # The share of 300 blocks is 105: the latest large one has 100 of them.
    assert table.of(PROTECTED) == [93, 95, 97, 99, 101, 103]
    assert sorted(table.of(PROBATION) + table.of(PROTECTED) + table.of(LARGE)) == list(range(2, 104))
    assert table.of(PROBATION) == sorted(table.of(PROBATION))
    assert table.segments.touch(102, 0), "the mount's first second"
    assert 102 in table.of(PROTECTED), "what was there before the mount was stored long ago"


def test_used_again_outlives_a_remount(rig: Rig) -> None:
    """By the last access and the last change that the store keeps anyhow."""
    made = [rig.put(f"n{number:02}", 4) for number in range(40)]
    stored = rig.store.attributes(made[0]).ctime_ns
    for number in (3, 30, 5):
        rig.store.touch(made[number], stored + (ONE_USE_S + 60 + number) * 1_000_000_000)
    rig.store.touch(made[7], stored + (ONE_USE_S - 10) * 1_000_000_000)
    rig.store.durability.flush_touches()
    rig.remount()
    assert rig.cache.evict_namespace(rig.namespace(), 37 * 4 * BLOCK).objects == 37
    assert rig.names() == ["n03", "n05", "n30"]


class SegmentsAgainstModel(RuleBasedStateMachine):
    """Counts agree with the lists; each object is in one list of its group."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.present: dict[int, int] = {}
        self.now = 0
        self.serial = 0

    @rule(slot=st.integers(2, 20), group=st.sampled_from([7, 8]), blocks=st.sampled_from([0, 1, 30, 100, 400]))
    def add(self, slot: int, group: int, blocks: int) -> None:
        if all(oid & 0xFFFFFFFF != slot for oid in self.present):
            self.serial += 1
            self.table.add(self.serial << 32 | slot, group, blocks, self.now)
            self.present[self.serial << 32 | slot] = group

    @rule(slot=st.integers(2, 20), later=st.sampled_from([0, 1, 70, 700]))
    def touch(self, slot: int, later: int) -> None:
        self.now += later
        for oid in self.present:
            if oid & 0xFFFFFFFF == slot:
                assert self.table.segments.touch(oid, self.now)

    @rule(slot=st.integers(2, 20))
    def remove(self, slot: int) -> None:
        for oid in list(self.present):
            if oid & 0xFFFFFFFF == slot:
                self.table.segments.remove(oid)
                del self.present[oid]
                assert not self.table.segments.touch(oid, self.now)

    @invariant()
    def counts_agree(self) -> None:
        table = self.table
        for group in (7, 8):
            found = [table.of(segment, group) for segment in (*SEGMENTS, KEPT)]
            assert sorted(oid for segment in found for oid in segment) == sorted(
                oid for oid, where in self.present.items() if where == group
            )
            counted = table.segments._blocks.get(group, [0, 0, 0, 0])
            assert counted == [table.blocks(segment, group) for segment in (*SEGMENTS, KEPT)]
            assert counted[PROTECTED] <= PROTECTED_SHARE * sum(counted)
        totals = [sum(table.blocks(segment, group) for group in (7, 8)) for segment in (*SEGMENTS, KEPT)]
        assert table.segments._total == totals
        assert table.segments.kept_blocks() == totals[KEPT]


SegmentsAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSegmentsAgainstModel = SegmentsAgainstModel.TestCase


@pytest.mark.parametrize("case", ["touch", "promote"])
def test_the_cost_of_a_use_does_not_depend_on_how_many_there_are(case: str) -> None:
    def cost(count: int) -> float:
        segments = Segments(1 << 40, lambda oid: 1)
        for slot in range(2, 2 + count):
            segments.add(slot, 1, 1, 0)
        best = float("inf")
        for turn in range(5):
            now = (turn + 1) * ONE_USE_S if case == "promote" else 0
            begin = perf_counter()
            for slot in range(2, 1002):
                segments.touch(slot, now)
            best = min(best, perf_counter() - begin)
        return best

    assert cost(200_000) < 6 * cost(2_000)
