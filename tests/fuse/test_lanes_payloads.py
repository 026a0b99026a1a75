"""What bounds the data plane: lanes bound its threads, payloads its memory."""

from __future__ import annotations

import mmap
import threading

import pytest

from hcfs.device.arena import HUGE, Arena
from hcfs.fuse.lanes import Job, Lane
from hcfs.fuse.payloads import Payloads
from hcfs.fuse.request import Request


def job(lane: Lane) -> Job:
    return Job(lane, Request(1, 2, 3, 0, 0, 0, b""), lambda: b"")


def test_a_lane_takes_as_many_as_it_may_and_keeps_the_order_of_the_others() -> None:
    lane = Lane(2)
    jobs = [job(lane) for _ in range(5)]
    assert [lane.enter(each) for each in jobs] == [True, True, False, False, False]
    assert [lane.leave() for _ in range(3)] == jobs[2:]
    assert lane.leave() is None
    assert lane.leave() is None
    assert lane.enter(jobs[0])


def test_a_lane_is_idle_when_the_last_has_left() -> None:
    lane = Lane(1)
    lane.wait_until_idle()
    first, second = job(lane), job(lane)
    lane.enter(first)
    lane.enter(second)
    waiting = threading.Thread(target=lane.wait_until_idle)
    waiting.start()
    assert lane.leave() is second
    waiting.join(0.05)
    assert waiting.is_alive()
    assert lane.leave() is None
    waiting.join(10)
    assert not waiting.is_alive()


def test_payloads_are_bounded_and_give_memory_back() -> None:
    payloads = Payloads(Arena(4096), 20, 8)
    taken = [payloads.take() for _ in range(20)]
    assert payloads.bytes_made == 20 * 4096
    got: list[memoryview] = []
    waiting = threading.Thread(target=lambda: got.append(payloads.take()))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    payloads.give(taken.pop())
    waiting.join(10)
    assert len(got) == 1
    for each in (*taken, *got):
        payloads.give(each)
    assert payloads.bytes_made == 8 * 4096
    again = [payloads.take() for _ in range(20)]
    assert len({id(each) for each in again}) == 20


def test_one_buffer_is_too_few() -> None:
    with pytest.raises(ValueError, match="2 are needed"):
        Payloads(Arena(4096), 1, 1)


def test_memory_that_the_system_refuses_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For a buffer that comes back, or for the system to change its mind; it is said once."""
    # A region of its own for each, so that each asks the system.
    payloads = Payloads(Arena(HUGE), 20, 8)
    taken = [payloads.take() for _ in range(2)]
    refused = threading.Event()

    def refuse(*_: object, **__: object) -> object:
        refused.set()
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(mmap, "mmap", refuse)
        for give in (True, False):
            got: list[memoryview] = []
            refused.clear()
            waiting = threading.Thread(target=lambda got=got: got.append(payloads.take()))
            waiting.start()
            assert refused.wait(10)
            if give:
                payloads.give(taken.pop())
                waiting.join(10)
                assert got
    waiting.join(10)
    assert got
    assert len(caplog.records) == 1
    caplog.clear()
