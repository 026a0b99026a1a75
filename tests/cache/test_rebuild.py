"""What a mount starts with."""

from __future__ import annotations

import random

from .conftest import Rig


def test_the_order_of_use_outlives_a_remount(rig: Rig) -> None:
    names = [f"n{number:02}" for number in range(40)]
    ids = {name: rig.put(name) for name in names}
    rig.store.create_empty(rig.namespace("other"), b"empty", 0o644, 0, 0)
    random.Random(1).shuffle(names)
    for name in names:
        assert rig.cache.used(ids[name])
    rig.store.quarantine(ids.pop(names.pop(7)), "for the test")
    rig.store.mkdir(rig.namespace(), b"directory", 0o755, 0, 0)
    rig.remount()
    rig.check_usage()
    for _ in names:
        rig.cache.evict_namespace(rig.namespace(), 1)
    assert rig.gone() == names


def test_a_lookup_counts_as_a_use_across_a_remount(rig: Rig) -> None:
    first, _ = rig.put("first"), rig.put("second")
    rig.cache.looked_up(first)
    rig.remount()
    rig.cache.evict_namespace(rig.namespace(), 1)
    assert rig.gone() == ["second"]


def test_salts_are_counted_again(rig: Rig) -> None:
    rig.put("m@0x01000100@0@00ff00ff@tenant.data", 3)
    before = rig.cache.namespaces.usage(rig.namespace())
    rig.remount()
    assert rig.cache.namespaces.usage(rig.namespace()) == before
    assert before.salts == {"tenant": 3 * 4096}


def test_an_aborted_writer_leaves_no_trace(rig: Rig) -> None:
    staged = rig.store.stage(None, namespace=rig.namespace(), mode=0o644, uid=0, gid=0)
    staged.write(0, bytes(8192))
    staged.abandon()
    assert rig.cache.namespaces.usage(rig.namespace()).objects == 0
