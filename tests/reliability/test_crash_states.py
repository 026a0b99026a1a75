"""What is acknowledged survives any crash, everything else is old, new or absent: the small budget of
tools/lab crash-states."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from hcfs.device import BufferPool
from hcfs.store import BLOCK, UnrecoveredStore, format_device, read_superblock, recovery
from hcfs.store.check import check
from hcfs.store.durability import Durability
from hcfs.store.errors import NotAStore
from hcfs.store.region_header import MAGIC as REGION_MAGIC
from hcfs.store.retention import Retention
from lab.reliability import crash, snapshots, workloads
from lab.reliability.campaigns import crash_states
from lab.reliability.crash import CrashFinding
from lab.reliability.overlay import OverlayDevice
from lab.reliability.recording import Event, Flush, Mark, RecordingDevice, Write, epochs

SEED = 20


def test_sequences_of_one_and_two_operations():
    summary = crash_states.campaign("sequences").finish(SEED, goal=10_000)
    assert summary.counts["states"] >= 10_000


def test_long_random_runs_and_lives_after_crashes():
    summary = crash_states.campaign("random", states=30).finish(SEED, goal=1500)
    assert summary.counts["second_lives"]
    assert summary.counts["checkpoints"]


def test_a_header_that_is_damaged_before_or_after_a_recovery_costs_nothing():
    assert damaged_headers_after_crashes() > 80


def damaged_headers_after_crashes() -> int:
    """How many crash states of two checkpoints were tried, each also with a header or a copy of one damaged."""
    steps = [("write", b"kv/d1/a", 5000), ("checkpoint",), ("mkdir", b"kv/d1/x"), ("commit",), ("checkpoint",)]
    run = crash.record(crash_states.image(), steps, SEED)
    return crash.explore(run, random.Random(SEED), 10, thorough=1).states


def test_a_torn_write_is_old_or_new_in_each_sector():
    write = Write(8192, bytes([1]) * 4096)
    for way in range(crash.TEARS):
        for offset, data in crash.torn(write, random.Random(way), way):
            assert offset % 512 == len(data) % 512 == 0
            assert 8192 <= offset < offset + len(data) <= 8192 + 4096
        assert 0 < sum(len(data) for _, data in crash.torn(write, random.Random(1), way)) < 4096 or way > 3


def test_few_outstanding_writes_are_tried_in_every_subset():
    writes = [Write(index * 4096, bytes([index]) * 4096) for index in range(6)]
    tried = list(crash.states(writes, random.Random(1), 60))
    whole = {
        tuple(offset for offset, _ in patches) for patches in tried if all(len(data) == 4096 for _, data in patches)
    }
    assert len(whole) == 64
    assert len(tried) == 64 + 60 // 3, "and some of them torn"


def test_epochs_end_at_flushes():
    one, two = Write(0, bytes(512)), Write(512, bytes(512))
    journal: list[Event] = [Mark("a"), one, Mark("b"), two, Flush(), Mark("c"), one]
    first, second = epochs(journal)
    assert (first.writes, first.marks_before, first.marks_within) == ((one, two), ("a",), ("b",))
    assert (second.writes, second.marks_before, second.marks_within) == ((one,), ("a", "b", "c"), ())


# --- the campaign sees what it looks for: each test breaks a rule of the store on purpose -----------------------------


def explore_broken(steps: list[workloads.Step]) -> None:
    for seed in range(20):
        crash.explore(crash.record(crash_states.image(), steps, seed), random.Random(seed), 200, thorough=0)


def test_it_sees_data_that_is_not_flushed_before_its_record(monkeypatch):
    flush_only_after(monkeypatch, lambda write: write.offset < read_superblock(image_device()).data_start * BLOCK)
    with pytest.raises(CrashFinding):
        explore_broken([("write", b"kv/d1/a", 70_000)])


def test_it_sees_blocks_that_are_used_again_too_early(monkeypatch):
    free_extents = Retention.free_extents

    def at_once(retention, oid, share, extents):
        free_extents(retention, oid, share, extents)
        retention.settle(retention.take_freed())

    monkeypatch.setattr(Retention, "free_extents", at_once)
    with pytest.raises(CrashFinding):
        explore_broken([("unlink", b"kv/d1/a"), ("write", b"kv/d2/b", 9000)])


def test_it_sees_a_commit_that_returns_before_its_flush(monkeypatch):
    def unflushed(durability, payloads, first):
        return durability._ledger.writer.append(payloads, first)

    monkeypatch.setattr(Durability, "_append", unflushed)
    with pytest.raises(CrashFinding):
        explore_broken([("mkdir", b"kv/d1/x"), ("commit",)])


def test_it_sees_a_checkpoint_whose_pages_are_not_flushed_before_its_header(monkeypatch):
    flush_only_after(monkeypatch, lambda write: write.data.startswith(REGION_MAGIC))
    with pytest.raises(CrashFinding):
        explore_broken([("checkpoint",)])


def test_it_sees_a_copy_of_a_header_that_is_written_with_it(monkeypatch):
    flush_only_after(monkeypatch, lambda write: not write.data.startswith(REGION_MAGIC))
    with pytest.raises(CrashFinding):
        explore_broken([("checkpoint",)])


def test_it_sees_a_copy_of_a_header_that_stays_old_after_a_crash(monkeypatch):
    monkeypatch.setattr(recovery, "mend_headers", lambda device, superblock, pair: None)
    with pytest.raises(CrashFinding):
        damaged_headers_after_crashes()


def flush_only_after(monkeypatch: pytest.MonkeyPatch, wanted: Callable[[Write], bool]) -> None:
    """Flushes do nothing unless the last write was a wanted one."""
    flush = RecordingDevice.flush

    def some(device: RecordingDevice) -> None:
        if not device.writes or wanted(device.writes[-1]):
            flush(device)

    monkeypatch.setattr(RecordingDevice, "flush", some)


def image_device() -> OverlayDevice:
    return OverlayDevice(crash_states.image(), [])


# --- mkfs, and recoveries that write ----------------------------------------------------------------------------------


def test_mkfs_leaves_a_whole_store_or_none():
    chance = random.Random(SEED)
    old = crash_states.image()
    device = RecordingDevice.over(old)
    format_device(device, granule=workloads.GRANULE, max_objects=64)
    medium, empty = bytearray(old), 0
    for epoch in epochs(device.journal):
        for patches in crash.states(epoch.writes, chance, 200):
            state = OverlayDevice(medium, patches)
            try:
                store = UnrecoveredStore.open(state, BufferPool(4 << 20)).recover()
            except NotAStore:
                continue
            if store.superblock.uuid == workloads.STORE_UUID:
                assert epoch.number == 0, "the former store comes back after the first flush"
                continue
            assert store.usage().objects == 1
            empty += 1
        for write in epoch.writes:
            medium[write.offset : write.offset + len(write.data)] = write.data
    assert empty


def in_the_log(device: RecordingDevice, session: workloads.Session) -> set[int]:
    batches = []
    for number in range(6):
        session.write(b"kv/d1/%d" % number, 3000)
        session.commit()
        batches.append(device.writes[-1].offset)
    device.contents[batches[2] + 100] ^= 1
    return {0, 1, 3, 4, 5}


def damage_behind_a_checkpoint(device: RecordingDevice, session: workloads.Session, at: int) -> set[int]:
    """A byte of the current region, the files of both of whose logs are left."""
    for number in range(6):
        if number == 3:
            session.checkpoint()
        session.write(b"kv/d1/%d" % number, 3000)
        session.commit()
    device.contents[session.store.superblock.regions[session.store.ledger.region] * BLOCK + at] ^= 1
    return {0, 1, 2, 3, 4, 5}


def in_the_checkpoint(device: RecordingDevice, session: workloads.Session) -> set[int]:
    return damage_behind_a_checkpoint(device, session, BLOCK + 100)


def in_the_header(device: RecordingDevice, session: workloads.Session) -> set[int]:
    return damage_behind_a_checkpoint(device, session, 100)


@pytest.mark.parametrize("damage", [in_the_log, in_the_checkpoint, in_the_header])
def test_a_recovery_that_mends_is_survived_when_it_crashes_itself(damage):
    """Recovery drops what was lost and writes a checkpoint; a crash at any moment of that leaves a state that the next
    recovery makes the same of."""
    device = RecordingDevice.over(crash_states.image())
    left = damage(device, workloads.Session(workloads.open_store(device), random.Random(1)))
    damaged = bytes(device.contents)

    first = OverlayDevice(damaged, [])
    mended = workloads.open_store(first)
    assert mended.state == "degraded"
    expected = snapshots.take(mended)
    assert {entry[0] for entry in expected.entries} >= {b"/kv/d1/%d" % number for number in left}
    medium, count = bytearray(damaged), 0
    for epoch in epochs(first.journal):
        for patches in crash.states(epoch.writes, random.Random(2), 100):
            again = OverlayDevice(medium, patches)
            assert paths(snapshots.take(workloads.open_store(again))) == paths(expected)
            assert check(again, data=True).clean
            count += 1
        for write in epoch.writes:
            medium[write.offset : write.offset + len(write.data)] = write.data
    assert count > 10


def paths(state: snapshots.Snapshot) -> set[tuple[object, ...]]:
    """What each path leads to: times of directories differ where names were dropped at another moment."""
    return {(entry[0], entry[1], entry[-1]) for entry in state.entries}
