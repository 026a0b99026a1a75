"""Counts by namespace and salt."""

from __future__ import annotations

import random

from hcfs.cache.usage import NamespaceUsage, UsageCounts

BLOCK = 4096


def chunk(salt: str) -> bytes:
    return b"m@0x01000100@0@00ff00ff@" + salt.encode() + b".data"


def test_what_goes_takes_off_what_it_added() -> None:
    counts = UsageCounts()
    counts.add(5, 2, 10, chunk("a"))
    counts.add(6, 2, 3, chunk("b"))
    counts.add(7, 2, 1, b"plain")
    counts.add(8, 3, 4, chunk("a"))
    assert counts.of(2) == NamespaceUsage(3, 14 * BLOCK, 0, {"a": 10 * BLOCK, "b": 3 * BLOCK})
    assert counts.of(3) == NamespaceUsage(1, 4 * BLOCK, 0, {"a": 4 * BLOCK})
    counts.remove(5, 2)
    assert counts.of(2) == NamespaceUsage(2, 4 * BLOCK, 0, {"b": 3 * BLOCK})
    assert counts.blocks_of(5) == 10
    counts.remove(6, 2)
    counts.remove(7, 2)
    assert counts.of(2) == NamespaceUsage()


def test_a_number_given_back_by_one_salt_serves_another() -> None:
    counts = UsageCounts()
    for number in range(1000):
        counts.add(5, 2, 1, chunk(f"tenant{number}"))
        assert counts.of(2).salts == {f"tenant{number}": BLOCK}
        counts.remove(5, 2)
    assert len(counts._salt_names) == 2


def test_an_empty_chunk_keeps_its_salt_but_shows_no_bytes() -> None:
    counts = UsageCounts()
    counts.add(5, 2, 0, chunk("a"))
    assert counts.of(2) == NamespaceUsage(1)
    counts.add(6, 2, 1, chunk("a"))
    counts.remove(5, 2)
    assert counts.of(2).salts == {"a": BLOCK}


def test_salts_that_are_not_utf8_are_shown_escaped() -> None:
    counts = UsageCounts()
    counts.add(5, 2, 1, b"m@0x01000100@0@00ff00ff@\xff.data")
    assert counts.of(2).salts == {"\\xff": BLOCK}


def test_evictions_are_counted_and_empty_namespaces_forgotten() -> None:
    counts = UsageCounts()
    counts.add(5, 2, 1, b"x")
    counts.count_eviction(2)
    counts.count_eviction(99)
    counts.remove(5, 2)
    assert counts.of(2) == NamespaceUsage(evictions=1)
    counts.keep_only({2})
    assert counts.of(2).evictions == 1
    counts.keep_only(set())
    assert counts.of(2) == NamespaceUsage()


def test_random_changes_against_a_recount() -> None:
    choose = random.Random(5)
    counts = UsageCounts()
    live: dict[int, tuple[int, int, str]] = {}
    for serial in range(1, 5000):
        slot = choose.randrange(40)
        previous = next((oid for oid in live if oid & 0xFFFFFFFF == slot), None)
        if previous is not None:
            counts.remove(previous, live.pop(previous)[0])
        else:
            oid = serial << 32 | slot
            live[oid] = (choose.randrange(3), choose.randrange(9), choose.choice(["", "a", "b", "c"]))
            namespace, blocks, salt = live[oid]
            counts.add(oid, namespace, blocks, chunk(salt) if salt else b"plain")
        for namespace in range(3):
            here = [(blocks, salt) for ns, blocks, salt in live.values() if ns == namespace]
            salts = {salt: BLOCK * sum(b for b, s in here if s == salt) for salt in "abc"}
            assert counts.of(namespace) == NamespaceUsage(
                len(here), BLOCK * sum(b for b, _ in here), 0, {salt: size for salt, size in salts.items() if size}
            )
