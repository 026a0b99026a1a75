"""The order in which eviction meets objects."""

from __future__ import annotations

import random
import threading

from hcfs.cache.candidates import Candidates
from hcfs.cache.grace import Grace
from hcfs.cache.segments import LARGE_PART, LARGE_SHARE, ONE_USE_S, Segments

BLOCKS = 10
"""Of every object but large ones."""


class Table:
    def __init__(self, grace_s: float = 30) -> None:
        self.now = 0.0
        self.lock = threading.Lock()
        self.sizes: dict[int, int] = {}
        self.segments = Segments(BLOCKS * 2 * 4096 * LARGE_PART, lambda oid: self.sizes[oid])
        self.grace = Grace(grace_s, 0, lambda: self.now)

    def add(self, slot: int, group: int, blocks: int = BLOCKS) -> None:
        self.sizes[slot] = blocks
        self.segments.add(slot, group, blocks, int(self.now))

    def touch(self, slot: int) -> None:
        self.segments.touch(slot, int(self.now))

    def candidates(self, groups: list[int] | None = None) -> Candidates:
        return Candidates(self.lock, self.segments, self.grace, groups)


def all_of(candidates: Candidates) -> list[int]:
    found = []
    while (candidate := candidates.take()) is not None:
        found.append(candidate[1])
    return found


def test_the_order_is_that_of_use_across_groups() -> None:
    choose = random.Random(3)
    table = Table()
    slots = list(range(2, 3000))
    for slot in slots:
        table.add(slot, choose.randrange(5))
    choose.shuffle(slots)
    for slot in slots:
        table.touch(slot)
    assert all_of(table.candidates()) == slots


def test_some_groups_only() -> None:
    table = Table()
    for slot in range(2, 12):
        table.add(slot, slot % 3)
    assert all_of(table.candidates([0])) == [3, 6, 9]
    assert all_of(table.candidates([1, 2])) == [2, 4, 5, 7, 8, 10, 11]
    assert all_of(table.candidates([77])) == []


def test_what_is_in_grace_does_not_come_until_it_ends() -> None:
    table = Table(grace_s=10)
    for slot in range(2, 1002):
        table.add(slot, 1)
        if slot != 900:
            table.grace.protect(slot)
    assert all_of(table.candidates()) == [900]
    table.now = 11
    assert len(all_of(table.candidates())) == 1000


def test_what_is_used_or_removed_meanwhile_ends_no_walk_early_and_comes_once() -> None:
    choose = random.Random(4)
    table = Table()
    for slot in range(2, 2002):
        table.add(slot, slot % 4)
    candidates = table.candidates()
    met = []
    undisturbed = set(range(2, 2002))
    while (candidate := candidates.take()) is not None:
        met.append(candidate[1])
        if choose.random() < 0.5:
            table.segments.remove(candidate[1])
        slot = choose.randrange(2, 2002)
        undisturbed.discard(slot)
        table.touch(slot)
        table.add(5000 + len(met), 1)
    assert len(met) == len(set(met))
    assert undisturbed <= set(met)


def test_many_protected_objects_are_passed_without_a_long_hold_of_the_lock() -> None:
    table = Table()
    for slot in range(2, 100_002):
        table.add(slot, slot % 3)
        table.grace.protect(slot)
    assert table.candidates().take() is None


def test_large_files_that_pass_through_come_first_while_they_hold_more_than_their_share() -> None:
    table = Table()
    for slot in range(2, 102):
        table.add(slot, 1)
    for slot in range(102, 112):
        table.add(slot, 2, 10 * BLOCKS)
    found = []
    candidates = table.candidates()
    while (candidate := candidates.take()) is not None:
        found.append(candidate[1])
        table.segments.remove(candidate[1])
    first = found.index(2)
    assert found[:first] == list(range(102, 102 + first))
    left = 10 - first
    assert 10 * left <= LARGE_SHARE * (100 + 10 * left) < 10 * (left + 1)
    assert sorted(found) == list(range(2, 112))


def test_what_is_pinned_is_passed_in_each_segment() -> None:
    """Nothing that comes is removed: all come all the same, the large ones first and again in their turn."""
    table = Table()
    for slot in range(2, 12):
        table.add(slot, 1)
    for slot in range(12, 15):
        table.add(slot, 1, 50 * BLOCKS)
    table.now = ONE_USE_S
    for slot in (3, 4, 5):
        table.touch(slot)
    assert all_of(table.candidates()) == [12, 13, 14, 2, *range(6, 12), 12, 13, 14, 3, 4, 5]


def test_what_loses_its_protection_during_a_pass_comes_in_it() -> None:
    table = Table()
    for slot in range(2, 102):
        table.add(slot, 1)
    table.now = ONE_USE_S
    for slot in range(52, 102):
        table.touch(slot)
    candidates = table.candidates()
    found = []
    while (candidate := candidates.take()) is not None:
        found.append(candidate[1])
        table.segments.remove(candidate[1])
    assert sorted(found) == list(range(2, 102))
    assert found[:50] == list(range(2, 52))
