"""The order in which eviction meets objects."""

from __future__ import annotations

import random
import threading

from hcfs.cache.candidates import Candidates
from hcfs.cache.grace import Grace
from hcfs.cache.recency import Recency


class Table:
    def __init__(self, grace_s: float = 30) -> None:
        self.now = 0.0
        self.lock = threading.Lock()
        self.recency = Recency()
        self.grace = Grace(grace_s, 0, lambda: self.now)

    def candidates(self, groups: list[int] | None = None) -> Candidates:
        return Candidates(self.lock, self.recency, self.grace, groups)


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
        table.recency.add(slot, choose.randrange(5))
    choose.shuffle(slots)
    for slot in slots:
        table.recency.touch(slot)
    assert all_of(table.candidates()) == slots


def test_some_groups_only() -> None:
    table = Table()
    for slot in range(2, 12):
        table.recency.add(slot, slot % 3)
    assert all_of(table.candidates([0])) == [3, 6, 9]
    assert all_of(table.candidates([1, 2])) == [2, 4, 5, 7, 8, 10, 11]
    assert all_of(table.candidates([77])) == []


def test_what_is_in_grace_does_not_come_until_it_ends() -> None:
    table = Table(grace_s=10)
    for slot in range(2, 1002):
        table.recency.add(slot, 1)
        if slot != 900:
            table.grace.protect(slot)
    assert all_of(table.candidates()) == [900]
    table.now = 11
    assert len(all_of(table.candidates())) == 1000


def test_what_is_used_or_removed_meanwhile_ends_no_walk_early_and_comes_once() -> None:
    choose = random.Random(4)
    table = Table()
    for slot in range(2, 2002):
        table.recency.add(slot, slot % 4)
    candidates = table.candidates()
    met = []
    undisturbed = set(range(2, 2002))
    while (candidate := candidates.take()) is not None:
        met.append(candidate[1])
        if choose.random() < 0.5:
            table.recency.remove(candidate[1])
        slot = choose.randrange(2, 2002)
        undisturbed.discard(slot)
        table.recency.touch(slot)
        table.recency.add(5000 + len(met), 1)
    assert len(met) == len(set(met))
    assert undisturbed <= set(met)


def test_many_protected_objects_are_passed_without_a_long_hold_of_the_lock() -> None:
    table = Table()
    for slot in range(2, 100_002):
        table.recency.add(slot, slot % 3)
        table.grace.protect(slot)
    assert table.candidates().take() is None
