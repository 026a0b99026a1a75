"""Eviction in the background."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hcfs.cache import Cache
from hcfs.device import BufferPool
from hcfs.errors import UsageError
from hcfs.store import BLOCK, UnrecoveredStore

from .conftest import Rig


def occupied(rig: Rig) -> float:
    usage = rig.store.usage()
    return 1 - usage.free / usage.capacity


def test_it_begins_above_the_high_mark_and_ends_at_the_low_one(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(high=0.8, low=0.6)
    number = 0
    while not rig.cache.over_high_watermark():
        assert rig.cache.evict_to_watermark() == 0
        rig.put(f"n{number:04}", 8)
        number += 1
    assert 0.8 < occupied(rig) < 0.81
    freed = rig.cache.evict_to_watermark()
    assert freed == len(rig.gone()) * 8 * BLOCK
    assert 0.59 < occupied(rig) <= 0.6
    assert rig.gone() == [f"n{n:04}" for n in range(len(rig.gone()))]
    assert not rig.cache.over_high_watermark()
    assert rig.cache.evict_to_watermark() == 0


def test_what_deletions_gave_up_is_waited_for_first(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(high=0.8, low=0.6)
    while not rig.cache.over_high_watermark():
        rig.put(f"n{len(rig.names())}", 8)
    for name in rig.names()[:5]:
        rig.store.unlink(rig.namespace(), name.encode())
    assert rig.store.usage().pending == 5 * 8 * BLOCK
    assert rig.cache.over_high_watermark()
    assert rig.cache.evict_to_watermark() == 0
    assert rig.gone() == []


def test_rows_of_the_object_table_have_marks_too(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(max_objects=300, high=0.8, low=0.6)
    for number in range(239):
        rig.store.create_empty(rig.namespace(), f"n{number:03}".encode(), 0o644, 0, 0)
    assert rig.cache.over_high_watermark()
    assert rig.cache.evict_to_watermark() == 0
    assert rig.gone() == [f"n{number:03}" for number in range(61)]
    assert rig.store.usage().objects == 180


def test_a_mark_that_pinned_objects_keep_out_of_reach_ends_all_the_same(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(high=0.5, low=0.3)
    pins = [rig.store.pin(oid) for oid in rig.fill()[::2]]
    rig.cache.evict_to_watermark()
    assert len(rig.names()) == len(pins)
    assert rig.cache.over_high_watermark() is (occupied(rig) > 0.5)
    assert rig.cache.evict_to_watermark() == 0


@pytest.mark.parametrize("marks", [(0.9, 0.9), (0.8, 0.9), (1.1, 0.5), (0.5, 0.0), (float("nan"), 0.5)])
def test_marks_that_make_no_sense_are_refused(make_rig: Callable[..., Rig], marks: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="can't be used: give parts of the capacity with 0 < low_watermark < high"):
        make_rig(high=marks[0], low=marks[1])


def test_a_read_only_store_is_left_alone(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(high=0.5, low=0.3)
    rig.fill()
    rig.store.commit()
    rig.store = UnrecoveredStore.open(rig.device, BufferPool(1 << 20)).recover(read_only=True)
    rig.cache = Cache(rig.store, entry_timeout_s=60, high_watermark=0.5, low_watermark=0.3, on_evicted=rig.on_evicted)
    assert not rig.cache.over_high_watermark()
    assert rig.cache.evict_to_watermark() == 0
    assert rig.gone() == []
