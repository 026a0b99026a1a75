"""Protection after a lookup."""

from __future__ import annotations

import pytest

from hcfs.cache.grace import Grace
from hcfs.errors import UsageError


class Clock:
    def __init__(self) -> None:
        self.now = 1234.5

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def covered(grace: Grace, oid: int) -> bool:
    return grace.covers(oid, grace.now())


@pytest.mark.parametrize("after", [0.0, 1.0, 29.9, 89.9, 91.0])
def test_it_lasts_as_long_as_the_kernel_may_answer_and_the_grace_after_that(clock: Clock, after: float) -> None:
    grace = Grace(30, 60, clock)
    clock.now += 0.7
    grace.protect(5)
    clock.now += after
    assert covered(grace, 5) is (after < 90)


def test_it_never_ends_early_and_at_most_a_second_late(clock: Clock) -> None:
    grace = Grace(1.5, 0, clock)
    for step in range(40):
        clock.now = 1234.5 + step * 7.3
        grace.protect(5)
        clock.now += 1.49
        assert covered(grace, 5)
        clock.now += 1.01
        assert not covered(grace, 5)


def test_none_without_a_grace_whatever_the_kernel_caches(clock: Clock) -> None:
    grace = Grace(0, 3600, clock)
    grace.protect(5)
    assert not covered(grace, 5)


def test_another_lookup_prolongs_it(clock: Clock) -> None:
    grace = Grace(10, 0, clock)
    grace.protect(5)
    clock.now += 8
    grace.protect(5)
    clock.now += 8
    assert covered(grace, 5)


def test_only_the_object_looked_up_is_covered(clock: Clock) -> None:
    grace = Grace(10, 0, clock)
    grace.protect(5)
    assert not covered(grace, 4)
    assert not covered(grace, 5000)
    grace.forget(5)
    grace.forget(9000)
    assert not covered(grace, 5)


@pytest.mark.parametrize("times", [(-1, 0), (0, -0.1), (float("nan"), 0), (float("inf"), 0)])
def test_times_that_are_none_are_refused(clock: Clock, times: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match=r"^(lookup_grace|entry_timeout)=\S+ is not a time: give seconds, 0 or more$"):
        Grace(*times, clock)
