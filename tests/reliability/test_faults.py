"""What a failing device does to a store, one failure at a time: the small budget of tools/lab faults, and each rule of
docs/reliability.md by itself."""

from __future__ import annotations

import random
import threading
import time

import pytest

from hcfs.device import BufferPool, DeviceError
from hcfs.errors import HcfsError
from hcfs.store import BLOCK, Store, UnrecoveredStore
from hcfs.store.check import check
from hcfs.store.errors import ReadOnlyStore, StagedFailed, UnreadableGranule
from hcfs.store.ledger import Ledger
from hcfs.store.repair import repair
from lab.reliability import snapshots, workloads
from lab.reliability.campaigns import faults
from lab.reliability.campaigns.crash_states import image
from lab.reliability.faults import EVER, Fault, Watched, run_with_fault
from lab.reliability.recording import RecordingDevice
from lab.reliability.workloads import GRANULE, Session

SEED = 30


def test_failures_one_by_one_until_none_fires():
    summary = faults.campaign().finish(SEED, goal=150)
    assert {name for name in summary.counts if " " in name} >= {
        f"{operation} {times}" for operation in ("read", "write", "flush") for times in ("once", "for ever")
    }


@pytest.fixture
def device() -> Watched:
    return Watched(RecordingDevice.over(image()))


@pytest.fixture
def session(device: Watched) -> Session:
    session = Session(workloads.open_store(device), random.Random(SEED))
    device.calls.clear()
    return session


def again(device: Watched) -> Store:
    """The next mount, when the device works again."""
    assert isinstance(device.inner, RecordingDevice)
    return workloads.open_store(RecordingDevice.over(device.inner.contents))


def data_start(store: Store) -> int:
    return store.superblock.data_start * BLOCK


def test_a_failed_flush_stops_the_store_and_is_never_tried_again(device, session):
    session.write(b"kv/d1/new", 5000)
    device.hooks.append(Fault("flush", times=1))
    with pytest.raises(DeviceError):
        session.store.commit()
    calls = len(device.calls)
    for _ in range(2):
        with pytest.raises(ReadOnlyStore):
            session.store.commit()
    with pytest.raises(ReadOnlyStore):
        session.mkdir(b"kv/late")
    assert len(device.calls) == calls
    assert session.store.state == "read-only"
    assert "couldn't be made durable" in session.store.state_reason
    assert snapshots.read_all(session.store, session.file(b"kv/d1/a"))
    session.store.close()
    assert again(device).state == "ok"


@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "short"])
def test_a_failed_write_of_the_log_stops_the_store(device, session, kind):
    session.mkdir(b"kv/new")
    device.hooks.append(Fault("write", end=data_start(session.store), times=1, kind=kind))
    with pytest.raises(DeviceError):
        session.store.commit()
    assert session.store.state == "read-only"
    store = again(device)
    assert store.state == "ok"
    # Of a short write the first sectors arrived, and with them the whole record.
    assert (Session(store, session.random).find(b"kv/new") is None) is (kind != "short")


@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "short"])
def test_a_failed_write_of_data_costs_that_object_alone(device, session, kind):
    parent, name = session.place(b"kv/d1/new")
    staged = session.store.stage(None, namespace=session.store.namespace_of(parent), mode=0o600, uid=0, gid=0)
    fault = Fault("write", start=data_start(session.store), times=1, kind=kind)
    device.hooks.append(fault)
    with pytest.raises(DeviceError):
        staged.write(0, bytes(1 << 20))
    assert (fault.failed, staged.failed) == (1, 5)
    for use in (staged.seal, lambda: staged.write(0, b"x"), lambda: session.store.publish(staged, parent, name)):
        with pytest.raises(StagedFailed):
            use()
    staged.abandon()
    session.write(b"kv/d1/other", 100_000)
    session.commit()
    assert session.store.state == "ok"
    snapshots.check_space(session.store)
    assert again(device).state == "ok"


@pytest.mark.parametrize("kind", ["EIO", "short"])
def test_a_failed_read_names_its_granule_and_changes_nothing(device, session, kind):
    session.write(b"kv/d1/big", 3 * GRANULE)
    session.commit()
    oid = session.file(b"kv/d1/big")
    (extent, *_) = session.store.content.extents_of(oid)
    bad = extent.block * BLOCK + GRANULE
    device.hooks.append(Fault("read", start=bad, end=bad + 1, kind=kind))
    pin = session.store.pin(oid)
    with pytest.raises(UnreadableGranule) as caught:
        session.store.read(pin, 0, 3 * GRANULE)
    assert caught.value.granule == 1
    for granule in (0, 2):
        assert len(session.store.read(pin, granule * GRANULE, GRANULE)) == GRANULE
    device.hooks.clear()
    assert bytes(session.store.read(pin, 0, 3 * GRANULE)) == session.bytes_of(oid)
    pin.release()
    assert session.store.state == "ok"
    assert session.store.counters.device_errors


def test_a_dying_device_serves_what_it_can_read_and_can_be_closed(device, session):
    session.write(b"kv/d1/good", 100_000)
    session.commit()
    for operation in ("write", "flush"):
        device.hooks.append(Fault(operation))
    for path in (b"kv/d1/x", b"kv/d1/y"):
        with pytest.raises(HcfsError):
            session.write(path, 200_000)
    session.mkdir(b"kv/seen")
    with pytest.raises(DeviceError):
        session.commit()
    assert snapshots.read_all(session.store, session.file(b"kv/d1/good")) == session.bytes_of(
        session.file(b"kv/d1/good")
    )
    session.store.close()
    assert again(device).state == "ok"


@pytest.mark.parametrize("operation", ["flush", "write"])
def test_a_stalled_commit_holds_up_neither_readers_nor_changes(device, session, operation):
    session.write(b"kv/d1/big", 3 * GRANULE)
    session.write(b"kv/d1/small", 100)
    stalled, go_on, once = threading.Event(), threading.Event(), iter([True])

    def stall(called: str, offset: int, length: int) -> None:
        if called == operation and threading.current_thread() is committing and next(once, False):
            stalled.set()
            assert go_on.wait(60)

    committing = threading.Thread(target=session.commit)
    device.hooks.append(stall)
    committing.start()
    assert stalled.wait(60)
    snapshots.read_all(session.store, session.file(b"kv/d1/big"))
    session.mkdir(b"kv/meanwhile")
    session.rename(b"kv/d1/a", b"kv/d1/a2")
    session.write(b"kv/d1/new", 2 * GRANULE)
    time.sleep(2)
    assert committing.is_alive(), "who wants it durable waits"
    go_on.set()
    committing.join()
    session.commit()
    assert session.store.state == "ok"
    assert snapshots.take(again(device)) == snapshots.take(session.store)


# --- failures while a store is opened ---------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, EVER])
def test_reads_that_fail_at_recovery_lose_nothing(times):
    """Whichever read fails: the store comes up whole, or read-only, or not at all; and the next time, when the device
    reads again, everything is there."""
    device = RecordingDevice.over(image())
    session = Session(workloads.open_store(device), random.Random(1))
    session.checkpoint()
    session.write(b"kv/d1/new", 3 * GRANULE)
    session.commit()
    before = bytes(device.contents)
    expected = snapshots.take(workloads.open_store(RecordingDevice.over(before)))
    outcomes, first = set(), 1
    while True:
        inner = RecordingDevice.over(before)
        fault = Fault("read", first=first, times=times)
        try:
            store = workloads.open_store(Watched(inner, fault))
        except HcfsError:
            outcomes.add("refused")
        else:
            outcomes.add(store.state)
        if not fault.failed:
            break
        again = workloads.open_store(inner)
        assert (again.state, snapshots.take(again)) == ("ok", expected)
        first += 1
    assert outcomes >= ({"ok", "refused", "read-only", "degraded"} if times == EVER else {"ok", "degraded"})


def test_a_region_that_cannot_be_read_is_left_alone_until_it_is_repaired():
    device = RecordingDevice.over(image())
    session = Session(workloads.open_store(device), random.Random(1))
    session.checkpoint()
    session.write(b"kv/d1/new", 5000)
    session.commit()
    latest = session.snapshot()
    start = session.store.superblock.regions[session.store.ledger.region] * BLOCK
    fault = Fault("read", start, start + 1)
    broken = Watched(device, fault)
    writes = len(device.writes)
    store = workloads.open_store(broken)
    assert (store.state, snapshots.take(store)) == ("read-only", latest), "the header has a copy"
    assert "fsck --repair" in store.state_reason
    fault.end = start + BLOCK * session.store.superblock.region_blocks
    store = workloads.open_store(broken)
    assert store.state == "read-only"
    assert snapshots.take(store) != latest
    assert "fsck --repair" in store.state_reason
    assert len(device.writes) == writes
    assert not check(broken).clean
    # An operator decides to go on with what can be read; writing gives the drive a chance to remap the block.
    assert repair(broken)
    assert workloads.open_store(device).state == "ok"


def test_superblocks_that_cannot_be_read_are_not_taken_for_no_store():
    """What is on the device may be whole: nobody is told to format it."""
    device = Watched(RecordingDevice.over(image()), Fault("read"))
    with pytest.raises(DeviceError):
        workloads.open_store(device)
    with pytest.raises(DeviceError):
        check(device)


@pytest.mark.parametrize(("operation", "kind"), [("flush", "EIO"), ("write", "EIO"), ("write", "short")])
def test_a_recovery_that_cannot_mend_fails_and_can_be_repeated(operation, kind):
    device = RecordingDevice.over(image())
    session = Session(workloads.open_store(device), random.Random(1))
    for number in range(4):
        session.mkdir(b"kv/%d" % number)
        session.commit()
        if number == 1:
            middle = device.writes[-1].offset
    device.contents[middle + 40] ^= 1
    before, first = bytes(device.contents), 1
    while True:
        inner = RecordingDevice.over(before)
        fault = Fault(operation, first=first, times=1, kind=kind)
        try:
            UnrecoveredStore.open(Watched(inner, fault), BufferPool(4 << 20)).recover()
        except DeviceError:
            assert fault.failed
        if not fault.failed:
            break
        found = Session(workloads.open_store(inner), session.random)
        assert [found.find(b"kv/%d" % number) is None for number in range(4)] == [False, True, False, False]
        assert workloads.open_store(inner).state == "ok"
        first += 1
    assert first > 2


def test_the_campaign_sees_a_flush_that_is_tried_again(monkeypatch):
    fail_stop = Ledger.fail_stop

    def careless(ledger: Ledger, error: Exception) -> None:
        fail_stop(ledger, error)
        ledger.state, ledger.stopped = "ok", False

    monkeypatch.setattr(Ledger, "fail_stop", careless)
    with pytest.raises(AssertionError):
        run_with_fault(image(), [("mkdir", b"kv/d1/x"), ("commit",)], 1, Fault("flush", times=1))
