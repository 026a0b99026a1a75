"""Group commits and checkpoints: the order of writes and flushes, and what a failure of one leaves."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from concurrent.futures import TimeoutError as StillRunning

import pytest
from store.devices import Fault, Watched
from store.rig import (
    GRANULE,
    again,
    check_space,
    content,
    get,
    in_thread,
    named,
    namespace,
    new_device,
    put,
    recover,
    stage,
    tree_of,
)

from hcfs.device import DeviceError
from hcfs.store import BLOCK, ROOT_ID, Store
from hcfs.store import checkpoints as checkpoints_module
from hcfs.store.errors import ChecksumMismatch, MetadataFull, ReadOnlyStore, UnreadableChecksums, UnreadableGranule


@pytest.fixture
def watched() -> Watched:
    return Watched(new_device())


@pytest.fixture
def store(watched: Watched) -> Store:
    store = recover(watched)
    namespace(store)
    store.commit()
    watched.calls.clear()
    return store


def place(store: Store, offset: int) -> str:
    sb, block = store.superblock, offset // BLOCK
    for number, start in enumerate(sb.regions):
        if start <= block < start + sb.region_blocks:
            inside = {start: "header", start + sb.header_copy: "copy"}
            return f"{inside.get(block, 'region')} {number}"
    return "data" if block >= sb.data_start else "superblock"


def order(store: Store, watched: Watched) -> list[str]:
    """What was done to the device, runs of one kind as one."""
    return [
        key for key, _ in itertools.groupby(place(store, at) if op == "write" else op for op, at, _ in watched.calls)
    ]


# --- the order -----------------------------------------------------------------------------------------------------


def test_data_is_flushed_before_its_record_is_written(store: Store, watched: Watched) -> None:
    put(store, b"a", content(0, 3 * GRANULE))
    put(store, b"b", b"small")
    assert order(store, watched) == ["data"]
    store.commit()
    assert order(store, watched) == ["data", "flush", "region 0", "flush"]
    assert sum(call[0] == "write" and place(store, call[1]) == "region 0" for call in watched.calls) == 1, "one batch"


def test_changes_of_names_alone_need_one_flush(store: Store, watched: Watched) -> None:
    store.mkdir(namespace(store), b"d", 0o755, 0, 0)
    store.commit()
    assert order(store, watched) == ["region 0", "flush"]
    watched.calls.clear()
    store.commit()
    assert watched.calls == []


def test_staged_data_is_flushed_even_without_a_record(store: Store, watched: Watched) -> None:
    """fsync of a version that isn't published yet."""
    staged = stage(store)
    staged.write(0, content(0, GRANULE))
    store.commit()
    assert order(store, watched)[-2:] == ["data", "flush"]


def test_a_batch_starts_at_a_block_and_never_touches_an_older_one(store: Store, watched: Watched) -> None:
    for number in range(10):
        store.mkdir(namespace(store), b"d%d" % number, 0o755, 0, 0)
        store.commit()
    writes = [(at, at + length) for op, at, length in watched.calls if op == "write"]
    assert all(at % BLOCK == 0 for at, _ in writes)
    assert [a for a, _ in writes[1:]] == [b for _, b in writes[:-1]]


def test_a_checkpoint_becomes_current_last(store: Store, watched: Watched) -> None:
    put(store, b"a", content(0, 3 * GRANULE))
    store.commit()
    watched.calls.clear()
    store.checkpoint()
    assert order(store, watched) == ["region 1", "flush", "header 1", "flush", "copy 1", "flush"]
    watched.calls.clear()
    store.mkdir(namespace(store), b"d", 0o755, 0, 0)
    store.commit()
    assert order(store, watched) == ["region 1", "flush"]
    watched.calls.clear()
    store.checkpoint()
    assert order(store, watched) == ["region 0", "flush", "header 0", "flush", "copy 0", "flush"]
    assert store.counters.checkpoints == 2
    found = again(store)
    assert (found.ledger.region, tree_of(found)) == (0, tree_of(store))


def test_commits_of_several_threads_are_one_after_the_other(store: Store, watched: Watched) -> None:
    flushing, go_on = threading.Event(), threading.Event()

    def hook(operation: str, offset: int, length: int) -> None:
        if operation == "flush":
            flushing.set()
            assert go_on.wait(20)

    watched.hooks.append(hook)
    store.mkdir(namespace(store), b"a", 0o755, 0, 0)
    first = in_thread(store.commit)
    assert flushing.wait(20)
    store.mkdir(namespace(store), b"b", 0o755, 0, 0)  # memory only: doesn't wait for the flush
    second = in_thread(store.commit)
    with pytest.raises(StillRunning):
        second.result(0.05)
    go_on.set()
    first.result(20)
    second.result(20)
    assert order(store, watched) == ["region 0", "flush", "region 0", "flush"]
    assert not store.durability.commit_pending()


def test_somebody_is_told_of_the_first_pending_change_only(store: Store) -> None:
    told: list[int] = []
    store.ledger.on_pending = lambda: told.append(1)
    put(store, b"a", b"1")
    put(store, b"b", b"1")
    assert (len(told), store.durability.commit_pending()) == (1, True)
    store.commit()
    assert not store.durability.commit_pending()
    put(store, b"c", b"1")
    assert len(told) == 2


def test_closing_commits(store: Store) -> None:
    put(store, b"a", b"1")
    store.touch(store.lookup(namespace(store), b"a") or 0, 10**19)
    store.close()
    device = new_device()
    device.contents[:] = store.device.inner.contents  # type: ignore[attr-defined]
    found = recover(device)
    assert named(found, b"a") == b"1"
    assert found.attributes(found.lookup(namespace(found), b"a") or 0).last_access_ns == 10**19


# --- failures ------------------------------------------------------------------------------------------------------

FAILURES = [
    Fault("flush", first=1, times=1),
    Fault("flush", first=2, times=1),
    Fault("write", start=BLOCK, end=3 << 20, times=1),
]


@pytest.mark.parametrize("number", range(3))
def test_after_a_failed_commit_the_store_is_read_only_for_good(
    number: int, store: Store, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    fault = FAILURES[number]
    kept, lost = put(store, b"kept", content(0, 2 * GRANULE)), put(store, b"replaced", b"old")
    store.commit()
    pin = store.pin(lost)
    new = put(store, b"replaced", content(1, GRANULE))
    staged = stage(store)
    staged.write(0, b"x")
    staged.seal()
    watched.hooks.append(fault)
    with pytest.raises(DeviceError):
        store.commit()
    assert "turns read-only" in caplog.text
    assert store.state == "read-only"
    assert "couldn't be made durable" in store.state_reason
    watched.calls.clear()
    # Nothing is written or flushed again, and nobody is told that his change is durable.
    changes: list[Callable[[], object]] = [
        store.commit,
        store.checkpoint,
        lambda: put(store, b"c", b"1"),
        lambda: store.mkdir(namespace(store), b"d", 0o755, 0, 0),
        lambda: store.unlink(namespace(store), b"kept"),
        lambda: store.set_xattr(kept, b"user.a", b"1"),
        lambda: store.publish(staged, namespace(store), b"s"),
        lambda: store.evict(kept),
    ]
    for change in changes:
        with pytest.raises(ReadOnlyStore, match="is read-only"):
            change()
    assert watched.calls == []
    assert fault.failed == 1
    # Reads go on, of what is durable and of what isn't.
    assert get(store, kept) == content(0, 2 * GRANULE)
    assert get(store, new) == content(1, GRANULE)
    assert bytes(store.read(pin, 0, 10)) == b"old"
    store.touch(kept)
    staged.abandon()
    pin.release()
    store.close()
    assert watched.calls == []
    watched.hooks.clear()
    survivor = new_device()
    survivor.contents[:] = watched.inner.contents  # type: ignore[attr-defined]
    found = recover(survivor)
    assert get(found, kept) == content(0, 2 * GRANULE)
    assert named(found, b"replaced") in (b"old", content(1, GRANULE))
    check_space(found)


def test_who_waited_for_a_commit_that_fails_is_told(store: Store, watched: Watched) -> None:
    """Both changes are in the batch that one of the two threads writes."""
    flushing, go_on = threading.Event(), threading.Event()

    def hook(operation: str, offset: int, length: int) -> None:
        if operation == "flush":
            flushing.set()
            assert go_on.wait(20)
            raise DeviceError("faulty", "flush")

    watched.hooks.append(hook)
    store.mkdir(namespace(store), b"a", 0o755, 0, 0)
    first = in_thread(store.commit)
    assert flushing.wait(20)
    second = in_thread(store.commit)
    with pytest.raises(StillRunning):
        second.result(0.05)
    go_on.set()
    with pytest.raises(DeviceError):
        first.result(20)
    with pytest.raises(ReadOnlyStore):
        second.result(20)


def test_an_unexpected_error_in_a_commit_stops_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the next batch would leave a gap in the numbers, and recovery lose it."""
    store.mkdir(namespace(store), b"a", 0o755, 0, 0)

    def broken(*_: object) -> bool:
        raise ValueError("a bug")

    monkeypatch.setattr(store.ledger.writer, "append", broken)
    with pytest.raises(ValueError, match="a bug"):
        store.commit()
    assert store.state == "read-only"
    assert store.counters.device_errors == 0


@pytest.mark.parametrize("fault", [Fault("flush", times=1), Fault("write", times=1), Fault("flush", first=2, times=1)])
def test_a_failed_checkpoint_loses_nothing_that_was_committed(fault: Fault, store: Store, watched: Watched) -> None:
    put(store, b"a", content(0, 2 * GRANULE))
    store.commit()
    watched.hooks.append(fault)
    with pytest.raises(DeviceError):
        store.checkpoint()
    with pytest.raises(ReadOnlyStore):
        store.checkpoint()
    assert store.state == "read-only"
    watched.hooks.clear()
    assert named(again(store), b"a") == content(0, 2 * GRANULE)


def test_a_failed_close_closes(store: Store, watched: Watched) -> None:
    put(store, b"a", b"1")
    watched.hooks.append(Fault("flush", times=1))
    with pytest.raises(DeviceError):
        store.close()
    with pytest.raises(DeviceError, match="closed"):
        watched.inner.flush()


# --- the log fills up ----------------------------------------------------------------------------------------------


def fill_log(store: Store) -> int:
    """Change something until the log has no room for a batch of 64 KiB; how many commits it took."""
    kv, count = namespace(store), 0
    while store.ledger.writer is not None and store.ledger.writer.room >= 70_000:
        store.set_xattr(kv, b"user.big", random.Random(count).randbytes(60_000))
        store.commit()
        count += 1
    return count


def test_a_full_log_makes_a_commit_a_checkpoint(store: Store, watched: Watched) -> None:
    assert not store.durability.checkpoint_due
    assert fill_log(store) > 10
    assert store.durability.checkpoint_due
    assert store.counters.checkpoints == 0
    old = put(store, b"old", content(5, GRANULE))
    store.commit()
    put(store, b"a", content(0, 2 * GRANULE))
    store.evict(old)
    store.set_xattr(namespace(store), b"user.big", bytes(65_000))
    watched.calls.clear()
    store.commit()
    assert order(store, watched) == ["flush", "region 1", "flush", "header 1", "flush", "copy 1", "flush"]
    assert (store.counters.checkpoints, store.durability.checkpoint_due) == (1, False)
    check_space(store)
    assert store.usage().pending == 0
    found = again(store)
    assert tree_of(found) == tree_of(store)
    assert found.state == "ok"


def test_changes_during_a_checkpoint_are_in_it_and_in_its_log(store: Store, watched: Watched) -> None:
    """Threads work while pages are written; the state after a crash is what was committed last."""
    put(store, b"before", content(0, 3 * GRANULE))
    store.commit()
    writing, go_on = threading.Event(), threading.Event()

    def hook(operation: str, offset: int, length: int) -> None:
        if operation == "write" and place(store, offset) == "region 1" and not writing.is_set():
            writing.set()
            assert go_on.wait(20)

    watched.hooks.append(hook)
    checkpoint = in_thread(store.checkpoint)
    assert writing.wait(20)
    put(store, b"during", content(1, 3 * GRANULE))
    store.unlink(namespace(store), b"before")
    assert not store.ledger.commit_lock.locked()
    store.commit()
    crashed = again(store)
    assert tree_of(crashed) == tree_of(store)
    put(store, b"later", content(3, GRANULE))
    go_on.set()
    checkpoint.result(20)
    put(store, b"after", content(2, GRANULE))
    store.commit()
    check_space(store)
    found = again(store)
    assert tree_of(found) == tree_of(store)
    assert sorted(name for name, _ in found.list_directory(namespace(found))) == [b"after", b"during", b"later"]


def test_a_commit_waits_for_a_checkpoint_only_where_the_log_is_full(store: Store, watched: Watched) -> None:
    writing, go_on = threading.Event(), threading.Event()

    def hook(operation: str, offset: int, length: int) -> None:
        if operation == "write" and place(store, offset) == "region 1" and not writing.is_set():
            writing.set()
            assert go_on.wait(20)

    watched.hooks.append(hook)
    checkpoint = in_thread(store.checkpoint)
    assert writing.wait(20)
    fill_log(store)
    put(store, b"a", content(0, GRANULE))
    store.set_xattr(namespace(store), b"user.big", bytes(65_000))
    committing = in_thread(store.commit)
    with pytest.raises(StillRunning):
        committing.result(0.05)
    assert store.durability.commit_pending()
    go_on.set()
    checkpoint.result(20)
    committing.result(20)
    assert not store.durability.commit_pending()
    found = again(store)
    assert (found.state, tree_of(found)) == ("ok", tree_of(store))


def test_a_checkpoint_ends_where_a_commit_fails(store: Store, watched: Watched) -> None:
    """Nothing is written after a failure: the region that was being written doesn't become the current one."""
    put(store, b"durable", b"1")
    store.commit()
    expected, failed = tree_of(store), threading.Event()

    def hook(operation: str, offset: int, length: int) -> None:
        if operation == "write" and place(store, offset) == "region 1" and not failed.is_set():
            failed.set()
            put(store, b"lost", b"2")
            watched.hooks.append(Fault("flush", times=1))
            with pytest.raises(DeviceError):
                store.commit()

    watched.hooks.append(hook)
    with pytest.raises(ReadOnlyStore):
        store.checkpoint()
    assert (store.state, store.counters.checkpoints, store.ledger.region) == ("read-only", 0, 0)
    assert "header 1" not in order(store, watched)
    found = again(store)
    assert found.state == "ok"
    assert expected.items() <= tree_of(found).items()


@pytest.mark.parametrize("seed", range(3))
def test_checkpoints_while_threads_write(seed: int, store: Store) -> None:
    kv, stop = namespace(store), threading.Event()

    def work(number: int) -> None:
        rng = random.Random((seed, number).__repr__())
        for step in range(40):
            name = b"%d-%d" % (number, rng.randrange(5))
            if rng.random() < 0.7:
                put(store, name, content((seed, number, step), rng.choice((10, GRANULE, 2 * GRANULE + 5))))
            elif store.lookup(kv, name) is not None:
                store.unlink(kv, name)
            if rng.random() < 0.3:
                store.commit()

    def checkpoints() -> None:
        while not stop.is_set():
            store.checkpoint()

    background = in_thread(checkpoints)
    workers = [in_thread(lambda number=number: work(number)) for number in range(3)]  # type: ignore[misc]
    for worker in workers:
        worker.result(60)
    stop.set()
    background.result(20)
    store.commit()
    check_space(store)
    found = again(store)
    assert found.state == "ok"
    assert tree_of(found) == tree_of(store)


def test_more_changes_than_a_new_log_holds_are_tried_again(
    store: Store, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv, bursts = namespace(store), [2]
    monkeypatch.setattr(checkpoints_module, "CHECKPOINT_TRIES", 3)

    def burst(operation: str, offset: int, length: int) -> None:
        if operation == "write" and place(store, offset) == "region 1" and bursts[0]:
            bursts[0] -= 1
            for number in range(30):
                store.set_xattr(kv, b"user.big", bytes([number]) * 60_000)

    watched.hooks.append(burst)
    store.checkpoint()
    assert store.get_xattr(kv, b"user.big") == bytes([29]) * 60_000
    store.commit()
    assert tree_of(again(store)) == tree_of(store)
    # With no end of them the checkpoint gives up, and nothing is lost by that.
    store.checkpoint()
    bursts[0] = 1000
    put(store, b"a", b"1")
    freed = put(store, b"freed", content(0, GRANULE))
    store.evict(freed)
    fill_log(store)
    store.set_xattr(kv, b"user.big", bytes(65_000))
    with pytest.raises(MetadataFull, match="during a checkpoint"):
        store.commit()
    assert (store.state, store.durability.commit_pending()) == ("ok", True)
    check_space(store)
    bursts[0] = 0
    store.commit()
    check_space(store)
    assert not store.durability.commit_pending()
    found = again(store)
    assert (found.state, tree_of(found)) == ("ok", tree_of(store))


def test_a_checkpoint_that_does_not_fit_its_region(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(store.superblock), "metadata_limit", 1 << 40)
    for number in range(30):
        oid = store.mkdir(namespace(store), b"%d" % number, 0o755, 0, 0)
        store.set_xattr(oid, b"user.a", bytes(60_000))
    with pytest.raises(MetadataFull, match="doesn't fit its region"):
        store.checkpoint()
    assert store.state == "ok"


# --- checksums that are on the medium ------------------------------------------------------------------------------


def test_pins_outlive_the_checkpoints_that_hold_their_checksums(store: Store) -> None:
    data = content(0, 5 * GRANULE)
    oid = put(store, b"a", data)
    store.checkpoint()
    pin = store.pin(oid)
    assert isinstance(pin.checksums, tuple)
    put(store, b"a", content(1, 5 * GRANULE))
    for number in range(4):
        put(store, b"n%d" % number, content(number, 3 * GRANULE))
        store.checkpoint()
    assert b"".join(bytes(store.read(pin, at, GRANULE)) for at in range(0, len(data), GRANULE)) == data
    store.content.verify(pin)
    pin.release()
    store.commit()
    check_space(store)


def test_checksums_read_while_a_checkpoint_overwrites_them(store: Store, watched: Watched) -> None:
    """A reader that is late with the place it was told reads something else there; what counts is what the checkpoint
    kept."""
    data = content(0, 5 * GRANULE)
    oid = put(store, b"a", data)
    store.checkpoint()
    pin = store.pin(oid)
    assert isinstance(pin.checksums, tuple)
    where = pin.checksums[0] // BLOCK * BLOCK
    reached, go_on = threading.Event(), threading.Event()

    def hook(operation: str, offset: int, length: int) -> None:
        if operation == "read" and offset == where and not reached.is_set():
            reached.set()
            assert go_on.wait(20)

    watched.hooks.append(hook)
    reading = in_thread(lambda: bytes(store.read(pin, 0, GRANULE)))
    assert reached.wait(20)
    store.checkpoint()
    store.mkdir(namespace(store), b"shifts the pages" * 9, 0o755, 0, 0)
    store.set_xattr(namespace(store), b"user.a", bytes(5000))
    store.checkpoint()
    go_on.set()
    assert reading.result(20) == data[:GRANULE]
    pin.release()


def test_a_checkpoint_that_cannot_read_checksums_changes_nothing(store: Store, watched: Watched) -> None:
    oid = put(store, b"a", content(0, 5 * GRANULE))
    store.checkpoint()
    bad = Fault("read", *table_of(store, oid), times=1)
    watched.hooks.append(bad)
    namespace(store, b"more")
    with pytest.raises(UnreadableChecksums):
        store.checkpoint()
    assert store.state == "ok"
    assert get(again(store), oid) == content(0, 5 * GRANULE)
    store.checkpoint()
    for found in (store, again(store)):
        assert found.lookup(ROOT_ID, b"more")
        assert get(found, oid) == content(0, 5 * GRANULE)


def test_checksums_still_unreadable_when_the_log_is_full_cost_their_object_and_not_the_store(
    store: Store, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    oid, other = put(store, b"a", content(0, 5 * GRANULE)), put(store, b"b", content(1, GRANULE))
    store.checkpoint()
    pin, reader = store.pin(oid), store.pin(oid)
    bad = Fault("read", *table_of(store, oid))
    watched.hooks.append(bad)
    with pytest.raises(UnreadableGranule, match="its checksums"):
        store.read(reader, 0, 1)
    checkpoints = store.counters.checkpoints
    while store.counters.checkpoints == checkpoints:
        store.set_xattr(other, b"user.fill", bytes(60_000))
        store.commit()
    watched.hooks.clear()
    assert store.state == "ok"
    assert "checksums of an object can't be read" in caplog.text
    for found in (store, again(store)):
        with pytest.raises(ChecksumMismatch):
            get(found, oid)
        assert get(found, other) == content(1, GRANULE)
    with pytest.raises(ChecksumMismatch):
        store.read(pin, 0, 1)


def table_of(store: Store, oid: int) -> tuple[int, int]:
    """Where the object's checksums start on the device, and one byte further."""
    pin = store.pin(oid)
    assert isinstance(pin.checksums, tuple)
    pin.release()
    return pin.checksums[0], pin.checksums[0] + 1
