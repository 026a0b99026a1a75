"""The pool: exact lengths, page addresses, automatic return, back-pressure, a budget that holds."""

from __future__ import annotations

import gc
import random
import threading
import time

import pytest

from hcfs.device import BufferPool
from hcfs.device.syscalls import address_of

KIB = 1 << 10
MIB = 1 << 20


@pytest.mark.parametrize("length", [1, 4095, 4096, 4097, 100_000, MIB])
def test_a_buffer_is_writable_page_aligned_and_exactly_as_long_as_asked(length: int) -> None:
    buffer = BufferPool(4 * MIB).acquire(length)
    assert (len(buffer), buffer.nbytes, buffer.format, buffer.readonly, buffer.contiguous) == (
        length,
        length,
        "B",
        False,
        True,
    )
    assert address_of(buffer) % 4096 == 0
    buffer[:] = b"x" * length


def test_the_last_slice_keeps_a_buffer_and_its_end_returns_it() -> None:
    pool = BufferPool(MIB)
    buffer = pool.acquire(8 * KIB)
    buffer[:] = b"a" * len(buffer)
    tail = buffer[8000:].cast("H")
    del buffer
    assert pool.statistics().in_use == 8 * KIB
    assert bytes(tail) == b"a" * 192
    del tail
    assert (pool.statistics().in_use, pool.statistics().idle) == (0, 8 * KIB)


def test_an_idle_buffer_is_used_again() -> None:
    pool = BufferPool(MIB)
    first = address_of(pool.acquire(8 * KIB))
    assert address_of(pool.acquire(5 * KIB)) == first


def test_a_buffer_outlives_its_pool() -> None:
    buffer = BufferPool(MIB).acquire(4096)
    gc.collect()
    buffer[:] = bytes(4096)


@pytest.mark.parametrize("length", [-1, 0, MIB + 1])
def test_a_length_that_can_never_be_served_is_an_error_and_not_a_hang(length: int) -> None:
    pool = BufferPool(MIB)
    with pytest.raises(ValueError, match="can't come from a pool"):
        pool.acquire(length)
    with pytest.raises(ValueError, match="can't come from a pool"):
        pool.try_acquire(length)


def test_a_budget_below_one_buffer_is_an_error() -> None:
    with pytest.raises(ValueError, match="holds no buffer"):
        BufferPool(4095)


def test_the_whole_budget_can_be_one_buffer_though_it_is_no_power_of_two() -> None:
    pool = BufferPool(5 * MIB + 123)
    buffer = pool.acquire(5 * MIB)
    assert len(buffer) == pool.statistics().in_use == pool.budget == 5 * MIB


def test_idle_buffers_of_other_sizes_give_way() -> None:
    pool = BufferPool(64 * KIB)
    small = [pool.acquire(4 * KIB) for _ in range(16)]
    del small
    assert pool.statistics().idle == 64 * KIB
    large = pool.acquire(32 * KIB)
    statistics = pool.statistics()
    assert len(large) == statistics.in_use == 32 * KIB
    assert statistics.in_use + statistics.idle <= statistics.budget


def test_who_finds_the_budget_used_up_waits_until_a_buffer_comes_back() -> None:
    pool = BufferPool(64 * KIB)
    held = [pool.acquire(32 * KIB), pool.acquire(32 * KIB)]
    got = threading.Event()

    def ask() -> None:
        pool.acquire(64 * KIB)
        got.set()

    waiter = threading.Thread(target=ask)
    waiter.start()
    held.pop()
    assert not got.wait(0.1)
    # statistics() and try_acquire() answer while somebody waits.
    assert pool.statistics().waits == 1
    assert pool.try_acquire(4096) is None
    held.pop()
    assert got.wait(10)
    waiter.join()
    assert pool.statistics().in_use == 0


def test_try_acquire_answers_none_instead_of_waiting() -> None:
    pool = BufferPool(8 * KIB)
    first = pool.try_acquire(8 * KIB)
    assert first is not None
    assert pool.try_acquire(1) is None
    del first
    assert pool.try_acquire(8 * KIB) is not None
    assert pool.statistics().waits == 0


def test_a_large_request_is_not_starved_by_small_ones() -> None:
    pool = BufferPool(64 * KIB)
    stop = threading.Event()

    def churn() -> None:
        mine = None
        while not stop.is_set():
            # A new one is asked for before the old one goes back, so that the pool is never empty by chance.
            mine = pool.try_acquire(4 * KIB) or pool.acquire(4 * KIB) if mine is None else None

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            pool.acquire(64 * KIB)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_many_threads_stay_within_the_budget_and_never_share_a_buffer() -> None:
    pool = BufferPool(MIB)
    failures: list[str] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(300):
            buffer = pool.acquire(chance.randrange(1, 300 * KIB))
            mark = bytes([seed]) * 16
            buffer[:16] = mark[: len(buffer)]
            if chance.random() < 0.1:
                time.sleep(0.001)
            if bytes(buffer[:16]) != mark[: len(buffer)]:
                failures.append(f"thread {seed} sees another's bytes")
            del buffer

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statistics = pool.statistics()
    assert failures == []
    assert statistics.in_use == 0
    assert 0 < statistics.peak <= statistics.budget
    assert statistics.in_use + statistics.idle <= statistics.budget


def test_the_garbage_collector_may_return_a_buffer_while_another_is_being_taken() -> None:
    pool = BufferPool(64 * KIB)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(200):
            cycle: list[object] = [pool.acquire(16 * KIB)]
            cycle.append(cycle)
            del cycle
            # Without the collector's help the fifth would wait for ever.
            gc.collect(0)
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert pool.statistics().in_use == 0
