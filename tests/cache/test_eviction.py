"""Which objects leave, and in which order."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable

import pytest

from hcfs.errors import HcfsError
from hcfs.store import BLOCK, ROOT_ID
from hcfs.store.errors import NoSpace, ReadOnlyStore

from .conftest import Rig


def test_a_store_into_a_full_device_takes_the_least_recently_used(rig: Rig) -> None:
    made = rig.fill()
    for oid in (*made[10:], *made[:5]):
        rig.cache.used(oid)
    for number in range(3):
        rig.put(f"new{number}", 64)
    assert rig.gone() == ["fill00005", "fill00006", "fill00007"]
    assert not {"fill00005", "fill00006", "fill00007"} & set(rig.names())
    assert {"new0", "new1", "new2"} < set(rig.names())


def test_the_names_told_are_all_that_the_object_had(rig: Rig) -> None:
    first = rig.fill()[0]
    directory = rig.store.mkdir(rig.namespace(), b"sub", 0o755, 0, 0)
    rig.store.link(first, directory, b"second name")
    assert rig.cache.make_room(1)
    assert sorted(rig.evicted) == sorted([(rig.namespace(), b"fill00000"), (directory, b"second name")])


def test_what_was_freed_can_be_used_at_once(rig: Rig) -> None:
    rig.fill()
    free = rig.store.usage().free
    assert rig.cache.make_room(200)
    assert rig.store.usage().free >= free + 200 * BLOCK
    assert rig.store.usage().pending == 0


def test_the_order_goes_across_namespaces(rig: Rig) -> None:
    for number in range(30):
        rig.put(f"n{number:02}", 16, f"ns{number % 3}")
    for number in range(0, 30, 2):
        rig.cache.used(rig.store.lookup(rig.namespace(f"ns{number % 3}"), f"n{number:02}".encode()) or 0)
    for number in range(1, 30, 2):
        rig.cache.evict_namespace(rig.namespace(f"ns{number % 3}"), 1)
    assert rig.gone() == [f"n{number:02}" for number in range(1, 30, 2)]


def test_pinned_objects_are_passed_and_their_readers_go_on(rig: Rig) -> None:
    made = rig.fill()
    pins = [rig.store.pin(oid) for oid in made[:3]]
    rig.put("new", 64)
    assert rig.gone() == ["fill00003"]
    for pin in pins:
        assert bytes(rig.store.read(pin, 0, BLOCK)) == b"f" * BLOCK
        pin.release()
    rig.put("newer", 64)
    assert rig.gone() == ["fill00003", "fill00000"]


def test_an_object_looked_up_is_protected_for_the_grace_and_the_time_the_kernel_answers(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(grace=30)
    made = rig.fill()
    for oid in made:
        assert rig.cache.looked_up(oid)
    told = rig.now
    rig.put("new", 64)
    assert 90 <= rig.now - told <= 92, "the writer waits until the first object isn't protected any more, and no longer"
    assert rig.gone() == ["fill00000"]


def test_a_writer_does_not_wait_for_objects_that_are_open(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(grace=30)
    made = rig.fill()
    pins = [rig.store.pin(oid) for oid in made]
    for oid in made:
        assert rig.cache.looked_up(oid)
    told = rig.now
    with pytest.raises(NoSpace):
        rig.put("new", 64)
    assert rig.now == told
    pins[0].release()
    rig.put("new", 64)
    assert rig.gone() == ["fill00000"]


def test_a_rename_takes_the_protection_along(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(grace=30)
    first, *_ = rig.fill()
    rig.cache.looked_up(first)
    rig.store.rename(rig.namespace(), b"fill00000", rig.namespace(), b"renamed")
    assert rig.cache.evict_namespace(rig.namespace(), None).nbytes > 0
    assert rig.names() == ["renamed"]


def test_a_new_object_in_a_slot_does_not_inherit_protection(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(grace=30)
    old = rig.put("old")
    rig.cache.looked_up(old)
    rig.store.unlink(rig.namespace(), b"old")
    new = rig.put("new")
    assert new & 0xFFFFFFFF == old & 0xFFFFFFFF
    assert rig.cache.evict_namespace(rig.namespace(), None).nbytes == BLOCK


def test_what_is_gone_can_not_be_used(rig: Rig) -> None:
    oid = rig.put("x")
    assert rig.cache.looked_up(oid)
    assert rig.cache.used(oid)
    rig.cache.evict_namespace(rig.namespace(), None)
    assert not rig.cache.looked_up(oid)
    assert not rig.cache.used(oid)
    assert not rig.cache.looked_up(ROOT_ID)
    assert not rig.cache.looked_up(1 << 60)


def test_quarantined_objects_go_first(rig: Rig) -> None:
    made = rig.fill()
    rig.store.quarantine(made[-1], "for the test")
    rig.put("new", 64)
    assert rig.gone() == []
    assert rig.store.removals.quarantined() == []
    rig.put("newer", 64)
    assert rig.gone() == ["fill00000"]
    assert rig.cache.statistics().evictions == 2


def test_an_object_that_can_not_be_removed_is_passed(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    made = rig.fill()
    evict = rig.store.evict

    def stubborn(oid: int) -> list[tuple[int, bytes]] | None:
        if oid in made[:2]:
            raise HcfsError("it doesn't want to")
        return evict(oid)

    rig.store.evict = stubborn  # type: ignore[method-assign]
    for number in range(5):
        rig.put(f"new{number}", 64)
    assert rig.gone() == [f"fill{number:05}" for number in range(2, 7)]
    assert f"object {made[0]} can't be evicted, the next one is tried: it doesn't want to" in caplog.messages


def test_when_everything_is_pinned_the_writer_is_told_within_a_second(rig: Rig) -> None:
    pins = [rig.store.pin(oid) for oid in rig.fill()]
    begin = time.perf_counter()
    with pytest.raises(NoSpace) as caught:
        rig.put("new", 64)
    assert time.perf_counter() - begin < 1
    assert caught.value.errno == errno.ENOSPC
    assert rig.gone() == []
    pins[7].release()
    rig.put("new", 64)
    assert rig.gone() == ["fill00007"]


def test_an_empty_store_has_nothing_to_evict(rig: Rig) -> None:
    assert not rig.cache.make_room(1)
    assert not rig.cache.make_room(0)
    assert rig.cache.evict_to_watermark() == 0
    assert rig.cache.evict_namespace(12345, None).nbytes == 0


def test_empty_files_stay_where_blocks_are_wanted(rig: Rig) -> None:
    for number in range(20):
        rig.store.create_empty(rig.namespace(), f"{number}.lock".encode(), 0o644, 0, 0)
    rig.fill()
    rig.put("new", 64)
    assert rig.gone() == ["fill00000"]


def test_a_full_object_table_makes_room_too(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(max_objects=200)
    for number in range(198):
        rig.store.create_empty(rig.namespace(), f"empty{number}".encode(), 0o644, 0, 0)
    for number in range(50):
        rig.put(f"new{number}")
    assert len(rig.gone()) >= 50
    assert all(name.startswith("empty") for name in rig.gone())


def test_a_read_only_store_evicts_nothing_and_says_so(rig: Rig) -> None:
    rig.fill()
    rig.store.ledger.state = "read-only"
    rig.store.ledger.state_reason = "the test says so"
    with pytest.raises(ReadOnlyStore):
        rig.cache.make_room(1)
    assert rig.gone() == []


def test_evicting_a_namespace_leaves_the_others_alone(rig: Rig) -> None:
    for number in range(20):
        rig.put(f"a{number:02}", 8, "one")
        rig.put(f"b{number:02}", 8, "two")
    one = rig.namespace("one")
    assert rig.cache.evict_namespace(one, 8 * BLOCK * 3 - 5).nbytes == 8 * BLOCK * 3
    assert rig.gone() == ["a00", "a01", "a02"]
    assert rig.cache.evict_namespace(one, 0).nbytes == 0
    rig.store.create_empty(one, b"empty", 0o644, 0, 0)
    assert rig.cache.evict_namespace(one, None).nbytes == 8 * BLOCK * 17
    assert rig.names("one") == []
    assert len(rig.names("two")) == 20
    assert rig.cache.namespaces.usage(one).evictions == 21
    assert rig.cache.namespaces.usage(rig.namespace("two")).evictions == 0


def test_statistics(rig: Rig) -> None:
    made = [rig.put(f"n{number}", 8) for number in range(10)]
    pin = rig.store.pin(made[0])
    assert rig.cache.statistics().evictable_bytes == 9 * 8 * BLOCK
    pin.release()
    rig.cache.evict_namespace(rig.namespace(), 1)
    statistics = rig.cache.statistics()
    assert (statistics.evictions, statistics.evicted_bytes, statistics.evictable_bytes) == (1, 8 * BLOCK, 72 * BLOCK)


def test_what_an_eviction_leaves_is_told_in_every_segment(make_rig: Callable[..., Rig]) -> None:
    """Large, new and used again: pinned ones and those that a lookup protects are counted apart."""
    rig = make_rig(grace=30)
    large = [rig.put(f"large{number}", 64) for number in range(2)]
    small = [rig.put(f"small{number}", 2) for number in range(40)]
    rig.now += 700
    for oid in small[:3]:
        rig.cache.used(oid)
    pin = rig.store.pin(small[0])
    for oid in (large[0], small[1], small[9]):
        assert rig.cache.looked_up(oid)
    kept = rig.cache._victims.kept(rig.namespace())
    assert (kept.pinned_objects, kept.protected_objects, kept.other_objects) == (1, 3, 38)
    assert kept.protected_bytes == (64 + 2 + 2) * BLOCK
    pin.release()
