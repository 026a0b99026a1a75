"""Damage to every kind of place: never a wrong byte, never another object harmed, detected, repaired, clean. The small
budget of tools/lab damage."""

from __future__ import annotations

import random

import pytest

from hcfs.device import BufferPool
from hcfs.store import BLOCK, UnrecoveredStore, read_superblock
from hcfs.store.check import check
from hcfs.store.content import Content
from lab.reliability import damage, workloads
from lab.reliability.campaigns import damage as campaign
from lab.reliability.overlay import OverlayDevice
from lab.reliability.recording import RecordingDevice
from lab.reliability.workloads import Session

SEED = 40


def test_flips_noise_zeros_stale_and_misdirected_blocks():
    summary = campaign.campaign().finish(SEED, cases=400)
    assert summary.counts["flips"] >= 150
    assert sum(name.startswith("in ") for name in summary.counts) >= 16


@pytest.mark.parametrize("kind", [damage.flip, damage.garbage, damage.zeros], ids=lambda kind: kind.__name__)
def test_each_kind_of_place(kind):
    victim = campaign.victim(1)
    for name, places in victim.by_kind().items():
        chance = random.Random(f"{name}/{kind.__name__}")
        place = chance.choice(places)
        patches = kind(victim, place, chance)
        if damage.lands(victim, patches):
            damage.judge(victim, victim.place_of(place, patches), patches, chance)


@pytest.mark.parametrize("kind", [damage.stale, damage.misdirected], ids=lambda kind: kind.__name__)
def test_whole_blocks_of_something_else_are_not_taken_for_a_granule(kind):
    victim, count = campaign.victim(2), 0
    for place in victim.by_kind()["granule"]:
        patches = kind(victim, place, random.Random(place.start))
        if damage.lands(victim, patches):
            damage.judge(victim, place, patches, random.Random(1))
            count += 1
    assert count > 5


def test_a_damaged_superblock_is_told_until_it_is_repaired():
    victim = campaign.victim(0)
    device = OverlayDevice(victim.image, [(100, b"?")])
    for _ in range(2):
        store = workloads.open_store(device)
        assert (store.state, "superblock" in store.state_reason) == ("degraded", True)
    assert not device.wrote


@pytest.mark.parametrize("which", ["current", "older"])
@pytest.mark.parametrize("kind", [damage.zeros, damage.garbage], ids=lambda kind: kind.__name__)
def test_a_region_that_is_gone_altogether(which, kind):
    victim = campaign.victim(3)
    header, *_ = victim.by_kind()[f"{which} region's header"]
    blocks = read_superblock(OverlayDevice(victim.image, [])).region_blocks
    current = which == "current"
    touches = damage.ANY if current else frozenset[bytes]()
    region = damage.Place(which, header.start, header.start + blocks * BLOCK, touches, older=current)
    patches = damage.zeros(victim, region, random.Random(1))
    if kind is damage.garbage:
        patches = [(region.start, random.Random(1).randbytes(region.end - region.start))]
    damage.judge(victim, region, patches, random.Random(1))


def test_a_lost_renaming_cannot_leave_directories_that_lie_in_each_other():
    """e leaves d1, then d1 moves into e. Without the first, each would be in the other, and no walk up would end."""
    device = RecordingDevice.over(workloads.base_image())
    session = Session(workloads.open_store(device), random.Random(1))
    session.rename(b"kv/d1/e", b"kv/e")
    session.commit()
    lost = device.writes[-1].offset
    session.rename(b"kv/d1", b"kv/e/d1")
    session.commit()
    device.contents[lost + 30] ^= 1
    assert not check(device, data=True).clean
    for read_only in (True, False):
        store = UnrecoveredStore.open(device, BufferPool(4 << 20)).recover(read_only)
        assert list(store.census.files_by_access()) or read_only
        found = Session(store, session.random)
        assert found.find(b"kv/d2/b")
        assert not found.find(b"kv/e")
    assert check(device, data=True).clean


def test_a_lost_renaming_cannot_leave_a_directory_with_two_names():
    device = RecordingDevice.over(workloads.base_image())
    session = Session(workloads.open_store(device), random.Random(1))
    session.rename(b"kv/d1/e", b"kv/e")
    session.commit()
    lost = device.writes[-1].offset
    session.rename(b"kv/e", b"kv/d2/e")
    session.commit()
    device.contents[lost + 30] ^= 1
    found = Session(workloads.open_store(device), session.random)
    assert found.find(b"kv/d2/e")
    assert not found.find(b"kv/d1/e")
    assert check(device, data=True).clean


def test_it_sees_a_reader_that_does_not_verify(monkeypatch):
    """The campaign itself is checked: without verification it must find wrong bytes."""
    victim = campaign.victim(0)
    place = max(victim.by_kind()["granule"], key=lambda place: place.end - place.start)
    patches = damage.flip(victim, place, random.Random(1))

    def careless(content, pin, first, last):
        granule = content._granule_bytes
        start, end = first * granule, min((last + 1) * granule, pin.size)
        buffer = content._pool.acquire(-(-(end - start) // 4096) * 4096)
        content._fill(pin, start // 4096, buffer)
        return buffer[: end - start]

    assert not check(OverlayDevice(victim.image, patches), data=True).clean
    monkeypatch.setattr(Content, "_read_granules", careless)
    with pytest.raises(AssertionError):
        damage.judge(victim, place, patches, random.Random(1), whole_truth=False)
