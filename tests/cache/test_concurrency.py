"""Many threads: writers that need room together, lookups beside eviction, locks."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from hcfs.device import DeviceError
from hcfs.store import BLOCK

from .conftest import Rig


def together(*calls: Callable[[], None]) -> None:
    """Run the calls in a thread each, started at once; raises what one of them raised."""
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], None]) -> None:
        start.wait()
        call()

    with ThreadPoolExecutor(len(calls)) as pool:
        for future in [pool.submit(run, call) for call in calls]:
            future.result(timeout=60)


def test_eight_writers_store_three_times_the_device_and_none_is_refused(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(16 << 20)
    rig.namespace()
    capacity = rig.store.usage().capacity
    each = 3 * capacity // (8 * 64 * BLOCK)

    def write(writer: int) -> Callable[[], None]:
        def run() -> None:
            for number in range(each):
                rig.put(f"w{writer}n{number}", 64)

        return run

    together(*map(write, range(8)))
    rig.check_usage()
    assert len(rig.names()) + len(rig.gone()) == 8 * each
    assert not set(rig.names()) & set(rig.gone())
    # Not much more went than had to: each round evicts for the writers that wait, and a small share for the next.
    assert rig.store.usage().used > 0.75 * capacity


def test_writers_that_wait_share_one_pass(rig: Rig) -> None:
    rig.fill(8)
    commits = rig.store.counters.group_commits
    results: list[bool] = []
    entered, leave = threading.Event(), threading.Event()
    commit = rig.store.commit

    def slow_commit() -> None:
        entered.set()
        assert leave.wait(10)
        commit()

    rig.store.commit = slow_commit  # type: ignore[method-assign]  # the test slows it
    threads = [threading.Thread(target=lambda: results.append(rig.cache.make_room(16))) for _ in range(9)]
    threads[0].start()
    assert entered.wait(10)
    for thread in threads[1:]:
        thread.start()
    deadline = time.monotonic() + 10
    while (waiting := rig.cache._eviction._round) is None or waiting.blocks < 8 * 16:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    leave.set()
    for thread in threads:
        thread.join(10)
    assert results == [True] * 9
    # One for the first, and one for the eight that came while it ran.
    assert rig.store.counters.group_commits - commits == 2
    assert len(rig.gone()) * 8 >= 9 * 16 - 8


def test_a_failed_commit_reaches_everyone_who_waits_for_it_and_names_are_told(rig: Rig) -> None:
    rig.fill()

    def failing() -> None:
        raise DeviceError("memory", "flush", 0, 0, reason="the test says so")

    rig.device.flush = failing  # type: ignore[method-assign]  # the test makes it fail
    errors: list[BaseException] = []

    def make_room() -> None:
        try:
            rig.cache.make_room(64)
        except Exception as error:
            errors.append(error)

    together(*[make_room] * 4)
    assert len(errors) == 4
    assert rig.gone() == ["fill00000"]
    assert rig.store.state == "read-only"


def test_on_evicted_may_call_anything_from_any_thread(rig: Rig) -> None:
    made = rig.fill()
    called: list[str] = []

    def callback(names: list[tuple[int, bytes]]) -> None:
        def call_everything() -> None:
            rig.cache.looked_up(made[-1])
            rig.store.commit()
            rig.cache.evict_namespace(rig.namespace(), 1) if not called else None
            rig.cache.namespaces.usage(rig.namespace())
            called.append("done")

        if len(called) < 2:
            thread = threading.Thread(target=call_everything, daemon=True)
            called.append("begun")
            thread.start()
            thread.join(10)
            assert not thread.is_alive()

    rig.cache._eviction._on_evicted = callback
    assert rig.cache.make_room(1)
    assert called == ["begun", "done"]


def test_a_lookup_that_was_answered_protects_even_while_eviction_runs(make_rig: Callable[..., Rig]) -> None:
    """Threads look objects up while another one evicts all it can: whoever was told yes finds the object there."""
    rig = make_rig(grace=1000)
    names = [f"n{number:04}" for number in range(600)]
    for name in names:
        rig.put(name)
    directory = rig.namespace()
    told: list[str] = []
    refused: list[str] = []

    def look(seed: int) -> Callable[[], None]:
        def run() -> None:
            for name in random.Random(seed).sample(names, 300):
                oid = rig.store.lookup(directory, name.encode())
                if oid is not None:
                    (told if rig.cache.looked_up(oid) else refused).append(name)

        return run

    together(*map(look, range(4)), lambda: rig.cache.evict_namespace(directory, None) and None)
    assert set(told) <= set(rig.names())
    assert set(refused) <= set(rig.gone())
    assert set(rig.names()) | set(rig.gone()) == set(names)


def test_a_lookup_of_the_object_that_is_just_being_evicted_waits_for_the_outcome(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(grace=30)
    victim, other = rig.put("victim"), rig.put("other")
    entered, leave = threading.Event(), threading.Event()
    evict = rig.store.evict

    def slow(oid: int) -> list[tuple[int, bytes]] | None:
        entered.set()
        assert leave.wait(10)
        return evict(oid)

    rig.store.evict = slow  # type: ignore[method-assign]  # the test slows it
    evictor = threading.Thread(target=lambda: rig.cache.evict_namespace(rig.namespace(), 1))
    evictor.start()
    assert entered.wait(10)
    assert rig.cache.looked_up(other)  # others don't wait
    answer: list[bool] = []
    looker = threading.Thread(target=lambda: answer.append(rig.cache.looked_up(victim)))
    looker.start()
    looker.join(0.2)
    assert answer == []
    leave.set()
    looker.join(10)
    evictor.join(10)
    assert answer == [False]
    assert rig.names() == ["other"]


@pytest.mark.parametrize("seed", range(3))
def test_counts_stay_right_under_everything_at_once(make_rig: Callable[..., Rig], seed: int) -> None:
    rig = make_rig(16 << 20, high=0.7, low=0.5)
    directory = rig.namespace()

    def work(number: int) -> Callable[[], None]:
        choose = random.Random(seed * 100 + number)

        def run() -> None:
            for _ in range(120):
                name = f"m@0x01000100@0@{choose.randrange(60):08x}@t{choose.randrange(3)}.data"
                action = choose.randrange(6)
                oid = rig.store.lookup(directory, name.encode())
                if action < 3 or oid is None:
                    rig.put(name, choose.choice([1, 20, 60]))
                elif action == 3:
                    rig.cache.looked_up(oid)
                    rig.store.quarantine(oid, "for the test")
                elif action == 4:
                    rig.cache.used(oid)
                else:
                    rig.cache.evict_to_watermark()

        return run

    together(*map(work, range(6)))
    rig.check_usage()
    counted = rig.cache.namespaces.usage(directory)
    assert sum(counted.salts.values()) == counted.used_bytes
    rig.cache.evict_namespace(directory, None)
    assert rig.cache.namespaces.usage(directory).salts == {}
