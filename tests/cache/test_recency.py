"""Least-recently-used order, compared with an ordered dictionary."""

from __future__ import annotations

from collections import OrderedDict
from time import perf_counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hcfs.cache.recency import Recency

GROUPS = st.sampled_from([7, 8, 9])
SLOTS = st.integers(0, 12)


def order(recency: Recency, group: int) -> list[int]:
    return [oid for _, oid in recency.advance(recency.walk(group), 1 << 20)]


class RecencyAgainstModel(RuleBasedStateMachine):
    """The model: for all groups one dictionary, object id to group, in order of use."""

    def __init__(self) -> None:
        super().__init__()
        self.recency = Recency()
        self.model: OrderedDict[int, int] = OrderedDict()
        self.serial = 0

    def present(self, slot: int) -> int | None:
        return next((oid for oid in self.model if oid & 0xFFFFFFFF == slot), None)

    @rule(slot=SLOTS, group=GROUPS)
    def add(self, slot: int, group: int) -> None:
        if self.present(slot) is None:
            self.serial += 1
            oid = self.serial << 32 | slot
            self.recency.add(oid, group)
            self.model[oid] = group

    @rule(slot=SLOTS)
    def touch(self, slot: int) -> None:
        oid = self.present(slot)
        if oid is not None:
            self.model.move_to_end(oid)
            assert self.recency.touch(oid)

    @rule(slot=SLOTS)
    def remove(self, slot: int) -> None:
        oid = self.present(slot)
        if oid is not None:
            del self.model[oid]
            assert self.recency.remove(oid)
            assert not self.recency.remove(oid)
            assert self.recency.was_last_in_slot(oid)

    @rule(slot=SLOTS)
    def ask_for_an_earlier_user_of_the_slot(self, slot: int) -> None:
        stale = self.serial + 1 << 32 | slot
        assert stale not in self.recency
        assert not self.recency.touch(stale)
        assert not self.recency.remove(stale)
        assert self.recency.stamp_of(stale) == 0
        assert self.recency.group_of(stale) is None

    @invariant()
    def same_order(self) -> None:
        assert len(self.recency) == len(self.model)
        for group in (7, 8, 9):
            assert order(self.recency, group) == [oid for oid, g in self.model.items() if g == group]
        oldest_of_group: dict[int, int] = {}
        for group in self.model.values():
            oldest_of_group.setdefault(group, len(oldest_of_group))
        assert [group for _, group in sorted(self.recency.heads())] == list(oldest_of_group)


RecencyAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRecencyAgainstModel = RecencyAgainstModel.TestCase


def filled(count: int) -> Recency:
    recency = Recency()
    for slot in range(2, 2 + count):
        recency.add(slot, 1)
    return recency


def test_a_walk_goes_on_where_it_was_though_its_place_was_removed() -> None:
    recency = filled(6)
    walk = recency.walk(1)
    assert [oid for _, oid in recency.advance(walk, 3)] == [2, 3, 4]
    recency.remove(3)
    recency.remove(4)
    assert [oid for _, oid in recency.advance(walk, 2)] == [5, 6]
    assert [oid for _, oid in recency.advance(walk, 2)] == [7]
    assert recency.advance(walk, 2) == []


def test_a_walk_does_not_meet_what_was_used_since_it_began() -> None:
    recency = filled(4)
    walk = recency.walk(1)
    assert [oid for _, oid in recency.advance(walk, 1)] == [2]
    recency.touch(2)
    recency.touch(4)
    recency.add(50, 1)
    assert [oid for _, oid in recency.advance(walk, 9)] == [3, 5]
    assert recency.advance(walk, 9) == []


def test_a_slot_used_again_since_does_not_carry_a_walk_astray() -> None:
    recency = filled(3)
    walk = recency.walk(1)
    recency.advance(walk, 1)
    recency.remove(2)
    recency.add(9 << 32 | 2, 5)
    assert [oid for _, oid in recency.advance(walk, 9)] == [3, 4]


@pytest.mark.parametrize("operation", ["touch", "add and remove"])
def test_the_cost_of_a_use_does_not_depend_on_how_many_there_are(operation: str) -> None:
    def cost(count: int) -> float:
        recency = filled(count)
        best = float("inf")
        for _ in range(5):
            begin = perf_counter()
            for slot in range(2, 1002):
                if operation == "touch":
                    recency.touch(slot)
                else:
                    recency.remove(slot)
                    recency.add(slot, 1)
            best = min(best, perf_counter() - begin)
        return best

    assert cost(200_000) < 6 * cost(2_000)
