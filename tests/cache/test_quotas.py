"""Quotas of namespaces and of salts: who makes room, who is refused, and that nothing ever exceeds them."""

from __future__ import annotations

import errno
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from hcfs.store import BLOCK, Staged
from hcfs.store.errors import QuotaExceeded

from .conftest import Rig


def chunk(number: int, salt: str = "") -> str:
    return f"m@0x01000100@0@{number:08x}{'@' + salt if salt else ''}.data"


def set_quota(rig: Rig, blocks: int | None, namespace: str = "kv", option: str = "quota") -> None:
    value = None if blocks is None else str(blocks * BLOCK)
    rig.cache.namespaces.set_option(rig.namespace(namespace), option, value)


def held(rig: Rig, namespace: str = "kv") -> int:
    """Blocks that count for the namespace's quota."""
    usage = rig.cache.namespaces.usage(rig.namespace(namespace))
    return (usage.used_bytes + usage.staged_bytes) // BLOCK


def stage(rig: Rig, name: str, namespace: str = "kv") -> Staged:
    directory = rig.namespace(namespace)
    staged = rig.store.stage(None, namespace=directory, mode=0o644, uid=0, gid=0)
    rig.store.assign(staged, rig.cache.account(directory, name.encode()))
    return staged


def test_a_full_namespace_evicts_its_own_oldest_and_no_others(rig: Rig) -> None:
    set_quota(rig, 40)
    for number in range(10):
        rig.put(f"other{number}", 8, "other")
    for number in range(8):
        rig.put(f"n{number}", 8)
        assert held(rig) <= 40
    assert rig.gone() == ["n0", "n1", "n2"]
    assert rig.names() == ["n3", "n4", "n5", "n6", "n7"]
    assert len(rig.names("other")) == 10
    assert rig.cache.namespaces.usage(rig.namespace()).evictions == 3


def test_use_keeps(rig: Rig) -> None:
    set_quota(rig, 40)
    made = [rig.put(f"n{number}", 8) for number in range(5)]
    rig.cache.used(made[0])
    rig.put("more", 8)
    assert rig.gone() == ["n1"]


def test_an_object_larger_than_the_quota_is_refused(rig: Rig) -> None:
    set_quota(rig, 40)
    rig.put("kept", 8)
    with pytest.raises(QuotaExceeded) as caught:
        rig.put("large", 41)
    assert caught.value.errno == errno.EDQUOT
    assert "raise it with 'hcfs ns set'" in str(caught.value)
    assert rig.names() == ["kept"], "one write that can't fit anyhow takes nothing with it"
    rig.put("exact", 40)
    assert rig.names() == ["exact"]


def test_the_refused_object_leaves_nothing(rig: Rig) -> None:
    set_quota(rig, 300)
    staged = stage(rig, "x")
    staged.write(0, bytes(256 * BLOCK))
    with pytest.raises(QuotaExceeded):
        staged.write(256 * BLOCK, bytes(45 * BLOCK))
    assert staged.failed == errno.EDQUOT
    staged.abandon()
    assert held(rig) == 0
    rig.check_usage()


def test_what_is_written_ahead_is_within_the_quota(rig: Rig) -> None:
    """Windows of 4 MiB are taken only while several of them fit."""
    set_quota(rig, 3000)
    staged = [stage(rig, f"n{number}") for number in range(4)]
    for offset in range(0, 512, 256):
        for one in staged:
            one.write(offset * BLOCK, bytes(256 * BLOCK))
            assert held(rig) <= 3000
    for number, one in enumerate(staged):
        one.seal()
        rig.store.publish(one, rig.namespace(), b"n%d" % number)
    assert held(rig) == 2048


def test_pinned_objects_stay_and_the_writer_is_told_at_once(rig: Rig) -> None:
    set_quota(rig, 40)
    pins = [rig.store.pin(rig.put(f"n{number}", 8)) for number in range(5)]
    begin = time.perf_counter()
    with pytest.raises(QuotaExceeded):
        rig.put("more", 1)
    assert time.perf_counter() - begin < 1
    assert rig.gone() == []
    pins[2].release()
    rig.put("more", 8)
    assert rig.gone() == ["n2"]


def test_a_writer_waits_for_what_only_lookups_protect(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(grace=30)
    set_quota(rig, 40)
    for number in range(5):
        assert rig.cache.looked_up(rig.put(f"n{number}", 8))
    rig.put("elsewhere", 8, "other")
    told = rig.now
    rig.put("more", 8)
    assert 90 <= rig.now - told <= 92
    assert rig.gone() == ["n0"]


def test_protection_elsewhere_is_no_reason_to_wait(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(grace=30)
    set_quota(rig, 40)
    pins = [rig.store.pin(rig.put(f"n{number}", 8)) for number in range(5)]
    assert rig.cache.looked_up(rig.put("elsewhere", 8, "other"))
    told = rig.now
    with pytest.raises(QuotaExceeded):
        rig.put("more", 8)
    assert rig.now == told
    for pin in pins:
        pin.release()


def test_the_old_object_counts_until_the_new_one_is_published(rig: Rig) -> None:
    set_quota(rig, 40)
    rig.put("x", 16)
    staged = stage(rig, "x")
    staged.write(0, bytes(20 * BLOCK))
    staged.seal()
    assert held(rig) == 36
    rig.store.publish(staged, rig.namespace(), b"x")
    assert held(rig) == 20
    rig.put("x", 21)  # the old one, which nobody has open, goes for the new one
    assert (held(rig), rig.gone()) == (21, ["x"])


def test_a_view_and_its_base_must_fit_together(rig: Rig) -> None:
    set_quota(rig, 40)
    base = rig.put("x", 30)
    view = rig.store.stage(base, namespace=rig.namespace(), mode=0, uid=0, gid=0)
    rig.store.assign(view, rig.cache.account(rig.namespace(), b"x"))
    view.write(0, b"changed")
    with pytest.raises(QuotaExceeded):
        view.seal()
    view.abandon()
    assert rig.names() == ["x"]


def test_what_lost_its_name_counts_for_nobody(rig: Rig) -> None:
    set_quota(rig, 40)
    pin = rig.store.pin(rig.put("x", 40))
    rig.store.unlink(rig.namespace(), b"x")
    assert held(rig) == 0
    rig.put("y", 40)
    assert rig.store.usage().pending == 40 * BLOCK
    pin.release()
    rig.store.commit()
    assert rig.store.usage().pending == 0


def test_eviction_for_a_quota_waits_for_no_commit(rig: Rig) -> None:
    set_quota(rig, 40)
    for number in range(5):
        rig.put(f"n{number}", 8)
    rig.store.commit()
    commits = rig.store.counters.group_commits
    for number in range(50):
        rig.put(f"more{number}", 8)
    assert rig.store.counters.group_commits == commits


def test_more_is_freed_at_once_than_one_write_wants(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(32 << 20, max_objects=4096)
    set_quota(rig, 2560)
    for number in range(2560):
        rig.put(f"n{number}")
    rig.put("more")
    assert len(rig.gone()) == 1 + 2560 // 256


def test_quarantined_objects_count_for_nobody(rig: Rig) -> None:
    set_quota(rig, 40)
    rig.store.quarantine(rig.put("x", 40), "for the test")
    rig.put("y", 40)
    assert held(rig) == 40


# --- changes ---------------------------------------------------------------------------------------------------------


def test_a_lowered_quota_is_evicted_down_to(rig: Rig) -> None:
    for number in range(10):
        rig.put(f"n{number}", 8)
    rig.cache.evict_to_quotas()
    assert not rig.cache.over_quota()
    set_quota(rig, 30)
    assert rig.cache.over_quota()
    assert rig.cache.evict_to_quotas() == 7 * 8 * BLOCK
    assert rig.names() == ["n7", "n8", "n9"]
    assert not rig.cache.over_quota()
    set_quota(rig, 0)
    assert rig.cache.evict_to_quotas() == 24 * BLOCK
    rig.put("empty", 0)
    with pytest.raises(QuotaExceeded):
        rig.put("x", 1)
    set_quota(rig, None)
    rig.put("x", 100)


def test_what_is_open_goes_when_it_is_closed(rig: Rig) -> None:
    pin = rig.store.pin(rig.put("open", 8))
    set_quota(rig, 1)
    assert rig.cache.evict_to_quotas() == 0
    assert rig.cache.over_quota()
    pin.release()
    assert rig.cache.evict_to_quotas() == 8 * BLOCK
    assert not rig.cache.over_quota()


def test_a_quota_below_what_is_staged(rig: Rig) -> None:
    """What is there may be published, no more is taken, and the background then evicts it."""
    staged = stage(rig, "x")
    staged.write(0, bytes(20 * BLOCK))
    set_quota(rig, 10)
    staged.seal()
    rig.store.publish(staged, rig.namespace(), b"x")
    assert held(rig) == 20
    with pytest.raises(QuotaExceeded):
        rig.put("y", 11)
    rig.cache.evict_to_quotas()
    assert (held(rig), rig.names()) == (0, [])


def test_a_quota_larger_than_the_device_leaves_the_device_to_decide(rig: Rig) -> None:
    set_quota(rig, 1 << 40)
    made = rig.fill()
    rig.put("new", 64)
    assert rig.gone() == ["fill00000"]
    assert len(rig.names()) == len(made)


def test_quotas_survive_a_remount_and_are_not_exceeded_after_it(rig: Rig) -> None:
    set_quota(rig, 40)
    for number in range(5):
        rig.put(f"n{number}", 8)
    rig.remount()
    rig.cache.evict_to_quotas()
    assert rig.names() == [f"n{number}" for number in range(5)], "a remount evicts nothing"
    rig.put("more", 8)
    assert (rig.gone(), held(rig)) == (["n0"], 40)
    rig.cache.namespaces.set_option(rig.namespace(), "quota", str(16 * BLOCK))
    rig.remount()
    rig.cache.evict_to_quotas()
    assert held(rig) == 16


def test_a_fraction_of_a_block_is_no_block(rig: Rig) -> None:
    rig.cache.namespaces.set_option(rig.namespace(), "quota", str(8 * BLOCK - 1))
    with pytest.raises(QuotaExceeded):
        rig.put("x", 8)
    rig.put("x", 7)


# --- salts -----------------------------------------------------------------------------------------------------------


def test_a_salt_evicts_inside_itself_only(rig: Rig) -> None:
    set_quota(rig, 16, option="salt_quota")
    for number in range(4):
        rig.put(chunk(number, "quiet"), 4)
    rig.put(chunk(100), 40)
    rig.put("no chunk", 40)
    for number in range(50):
        rig.put(chunk(number, "loud"), 4)
        salts = rig.cache.namespaces.usage(rig.namespace()).salts
        assert salts["loud"] <= 16 * BLOCK
    assert salts == {"quiet": 16 * BLOCK, "loud": 16 * BLOCK}
    assert all("loud" in name for name in rig.gone())
    assert {chunk(number, "loud") for number in range(46, 50)} <= set(rig.names())


def test_a_salt_under_its_staging_name_counts_for_it(rig: Rig) -> None:
    set_quota(rig, 16, option="salt_quota")
    staged = stage(rig, chunk(1, "a") + ".tmp")
    staged.write(0, bytes(16 * BLOCK))
    with pytest.raises(QuotaExceeded, match="the cache salt 'a'"):
        stage(rig, chunk(2, "a") + ".tmp").write(0, bytes(16 * BLOCK))
    stage(rig, chunk(2, "b") + ".tmp").write(0, bytes(16 * BLOCK))
    staged.seal()
    rig.store.publish(staged, rig.namespace(), chunk(1, "a").encode())
    assert rig.cache.namespaces.usage(rig.namespace()).salts == {"a": 16 * BLOCK}


def test_both_quotas_hold(rig: Rig) -> None:
    set_quota(rig, 40)
    set_quota(rig, 16, option="salt_quota")
    for number in range(60):
        rig.put(chunk(number, f"t{number % 5}"), 4)
        usage = rig.cache.namespaces.usage(rig.namespace())
        assert held(rig) <= 40
        assert all(value <= 16 * BLOCK for value in usage.salts.values())
    assert held(rig) == 40


def test_a_lowered_salt_quota_is_evicted_down_to(rig: Rig) -> None:
    for number in range(20):
        rig.put(chunk(number, "ab"[number % 2]), 4)
    rig.put(chunk(0), 30)
    set_quota(rig, 9, option="salt_quota")
    rig.cache.evict_to_quotas()
    assert rig.cache.namespaces.usage(rig.namespace()).salts == {"a": 8 * BLOCK, "b": 8 * BLOCK}
    assert chunk(0) in rig.names()


def test_what_is_staged_can_come_to_another_salt_if_it_fits(rig: Rig) -> None:
    set_quota(rig, 40)
    set_quota(rig, 16, option="salt_quota")
    rig.put(chunk(1, "a"), 8)
    staged = stage(rig, "x.tmp")
    staged.write(0, bytes(20 * BLOCK))
    account = rig.cache.account(rig.namespace(), chunk(2, "a").encode())
    with pytest.raises(QuotaExceeded):
        rig.store.assign(staged, account)
    assert not rig.cache.make_room_in_salt(rig.namespace(), chunk(2, "a").encode(), 20)
    small = stage(rig, "y.tmp")
    small.write(0, bytes(12 * BLOCK))
    small.seal()
    small_account = rig.cache.account(rig.namespace(), chunk(3, "a").encode())
    with pytest.raises(QuotaExceeded):
        rig.store.assign(small, small_account)
    assert rig.cache.make_room_in_salt(rig.namespace(), chunk(3, "a").encode(), 12)
    rig.store.assign(small, small_account)
    assert rig.gone() == [chunk(1, "a")]
    assert held(rig) == 32
    for one in (staged, small):
        one.abandon()
    assert held(rig) == 0


# --- many at once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("salted", [False, True], ids=["namespace", "salts"])
def test_eight_writers_never_exceed_it(make_rig: Callable[..., Rig], salted: bool) -> None:
    """Three times the quota from eight threads; another one looks on without a pause."""
    rig = make_rig(32 << 20, max_objects=4096)
    directory = rig.namespace()
    quota = 1500
    set_quota(rig, 3000 if salted else quota)
    if salted:
        set_quota(rig, quota, option="salt_quota")
    rig.put("bystander", 64, "other")
    done, seen, exceeded = threading.Event(), 0, []

    def look() -> None:
        nonlocal seen
        while not done.is_set():
            usage = rig.cache.namespaces.usage(directory)
            total = usage.used_bytes + usage.staged_bytes
            if total > (3000 if salted else quota) * BLOCK or any(v > quota * BLOCK for v in usage.salts.values()):
                exceeded.append(usage)
            seen += 1

    def write(writer: int) -> None:
        choose = random.Random(writer)
        for number in range(40):
            blocks = choose.choice([1, 7, 30, 60])
            rig.put(chunk(writer << 16 | number, f"s{writer % 2}") if salted else f"w{writer}n{number}", blocks)

    looker = threading.Thread(target=look)
    looker.start()
    try:
        with ThreadPoolExecutor(8) as pool:
            for future in [pool.submit(write, writer) for writer in range(8)]:
                future.result(timeout=60)
    finally:
        done.set()
        looker.join()
    assert exceeded == []
    assert seen > 10
    assert held(rig) > 0.9 * quota
    assert rig.names("other") == ["bystander"]
    assert rig.cache.statistics().evictions == len(rig.gone()) > 50
    rig.check_usage()


@pytest.mark.parametrize("seed", range(2))
def test_counts_stay_right_while_quotas_change(make_rig: Callable[..., Rig], seed: int) -> None:
    rig = make_rig(16 << 20, max_objects=4096)
    directory = rig.namespace()

    def work(number: int) -> None:
        choose = random.Random(seed * 100 + number)
        for _ in range(100):
            name = chunk(choose.randrange(40), f"t{choose.randrange(3)}")
            action = choose.randrange(8)
            if action < 4:
                try:
                    rig.put(name, choose.choice([1, 20, 60]))
                except QuotaExceeded:
                    continue
            elif action == 4:
                set_quota(rig, choose.choice([None, 0, 50, 400]))
            elif action == 5:
                set_quota(rig, choose.choice([None, 10, 100]), option="salt_quota")
            elif action == 6:
                rig.cache.evict_to_quotas()
            else:
                staged = stage(rig, name)
                try:
                    staged.write(0, bytes(30 * BLOCK))
                    rig.store.assign(staged, rig.cache.account(directory, b"other"))
                except QuotaExceeded:
                    pass
                staged.abandon()

    with ThreadPoolExecutor(6) as pool:
        for future in [pool.submit(work, number) for number in range(6)]:
            future.result(timeout=60)
    rig.check_usage()
    set_quota(rig, 0)
    rig.cache.evict_to_quotas()
    assert held(rig) == 0
    assert rig.cache.quotas._staged == {}
