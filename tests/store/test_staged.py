"""Staged objects: how they end, how they fail, and what threads may do to one at the same time."""

from __future__ import annotations

import errno
import itertools
import random
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
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
    new_store,
    put,
    recover,
    stage,
)

from hcfs.device import DeviceError, MemoryDevice
from hcfs.errors import HcfsError
from hcfs.store import BLOCK, Staged, Store
from hcfs.store import staged as staged_module
from hcfs.store import staging as staging_module
from hcfs.store.errors import ChecksumMismatch, NoSpace, NoSuchName, NoSuchObject, ObjectTooLarge, StagedFailed

if TYPE_CHECKING:
    from typing_extensions import Buffer


def watched_store() -> tuple[Store, Watched]:
    device = Watched(new_device())
    store = recover(device)
    namespace(store)
    store.commit()
    return store, device


class Gate:
    """A hook that holds the calls it matches until it is opened."""

    def __init__(self, operation: str, *, length: int | None = None) -> None:
        self.operation, self.length = operation, length
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, operation: str, offset: int, length: int) -> None:
        if operation == self.operation and self.length in (None, length) and not self.opened.is_set():
            self.reached.set()
            assert self.opened.wait(20)


@contextmanager
def stays_unfinished(call: Callable[[], object]) -> Iterator[None]:
    """The call waits for as long as the body runs, and ends after it."""
    future = in_thread(call)
    with pytest.raises(TimeoutError):
        future.result(0.05)
    yield
    future.result(20)


# --- sealing and publishing ----------------------------------------------------------------------------------------


def test_publishing_makes_it_visible_and_committing_durable() -> None:
    store = new_store()
    kv = namespace(store)
    store.commit()
    staged = stage(store, mode=0o4640, xattrs={b"user.a": b"1"})
    staged.write(0, b"bytes")
    assert store.lookup(kv, b"name") is None
    with pytest.raises(StagedFailed, match="isn't sealed"):
        store.publish(staged, kv, b"name")
    staged.seal()
    assert staged.sealed
    assert store.publish(staged, kv, b"name") == staged.id
    assert (staged.ended, store.lookup(kv, b"name")) == (True, staged.id)
    a = store.attributes(staged.id)
    assert (a.mode, a.uid, a.gid, a.nlink, a.size, a.blocks, a.state) == (
        stat.S_IFREG | 0o4640,
        1000,
        1000,
        1,
        5,
        1,
        "committed",
    )
    assert store.get_xattr(staged.id, b"user.a") == b"1"
    assert again(store).lookup(kv, b"name") is None
    store.commit()
    found = again(store)
    assert found.attributes(staged.id) == a
    assert get(found, staged.id) == b"bytes"
    assert found.content.content_crc32c(staged.id) == crc32c(b"bytes")
    assert store.counters.commits == 1


def test_a_write_undoes_the_seal() -> None:
    store = new_store()
    staged = stage(store)
    staged.write(0, b"a")
    staged.seal()
    staged.seal()
    staged.write(1, b"b")
    assert not staged.sealed
    with pytest.raises(StagedFailed):
        store.publish(staged, namespace(store), b"name")
    staged.seal()
    staged.truncate(1)
    assert not staged.sealed
    staged.seal()
    assert get(store, store.publish(staged, namespace(store), b"name")) == b"a"


@pytest.mark.parametrize("end", ["publish", "abandon"])
def test_after_its_end_nothing_is_taken(end: str) -> None:
    store = new_store()
    staged = stage(store)
    staged.write(0, b"a")
    staged.seal()
    if end == "publish":
        store.publish(staged, namespace(store), b"name")
    else:
        staged.abandon()
    for call in (lambda: staged.write(0, b"x"), lambda: staged.truncate(0), lambda: staged.read(0, 1), staged.seal):
        with pytest.raises(StagedFailed, match="has ended"):
            call()
    with pytest.raises(StagedFailed, match="has ended"):
        store.publish(staged, namespace(store), b"other")
    staged.abandon()
    staged.abandon()
    assert store.usage().staged_objects == 0
    assert (store.lookup(namespace(store), b"name") is None) == (end == "abandon")
    check_space(store)


def test_an_empty_object_and_an_object_of_holes() -> None:
    store = new_store()
    empty = stage(store)
    empty.seal()
    empty_id = store.publish(empty, namespace(store), b"empty")
    holes = stage(store)
    holes.truncate(3 * GRANULE + 5)
    assert holes.read(GRANULE, 100) == bytes(100)
    holes.seal()
    holes_id = store.publish(holes, namespace(store), b"holes")
    assert (store.content.extents_of(empty_id), store.content.extents_of(holes_id)) == ([], [])
    store.commit()
    found = again(store)
    assert (get(found, empty_id), get(found, holes_id)) == (b"", bytes(3 * GRANULE + 5))
    assert found.content.content_crc32c(holes_id) == crc32c(bytes(3 * GRANULE + 5))
    assert found.content.content_crc32c(empty_id) == 0


def test_the_rest_of_the_last_block_is_zeros_on_the_medium() -> None:
    store = new_store()
    old = put(store, b"secret", b"S" * 5 * BLOCK)
    store.evict(old)
    store.commit()
    staged = stage(store)
    staged.write(0, b"x" * 5 * BLOCK)
    staged.truncate(4 * BLOCK + 10)
    staged.seal()
    oid = store.publish(staged, namespace(store), b"name")
    (extent,) = store.content.extents_of(oid)
    last = (extent.block + 4) * BLOCK
    assert extent.count == 5
    assert store.device.contents[last : last + BLOCK] == b"x" * 10 + bytes(BLOCK - 10)  # type: ignore[attr-defined]


def test_a_sequential_object_has_one_extent() -> None:
    store = new_store()
    others = [stage(store) for _ in range(3)]
    for step in range(40):
        for number, staged in enumerate(others):
            staged.write(step * 20_000, content((step, number), 20_000))
    for number, staged in enumerate(others):
        staged.seal()
        oid = store.publish(staged, namespace(store), b"%d" % number)
        assert len(store.content.extents_of(oid)) <= 6
        assert get(store, oid) == b"".join(content((step, number), 20_000) for step in range(40))
    big = put(store, b"big", bytes(2 << 20))
    assert len(store.content.extents_of(big)) == 1
    check_space(store)


def test_an_object_that_is_too_large() -> None:
    store = new_store()
    staged = stage(store)
    with pytest.raises(ObjectTooLarge) as refused:
        staged.truncate(store.staging.max_object_bytes + 1)
    assert (refused.value.errno, staged.failed) == (errno.EFBIG, errno.EFBIG)
    with pytest.raises(StagedFailed, match="failed before"):
        staged.write(0, b"x")


def test_an_object_in_too_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_module, "RECORD_MAX", 1500)
    store = new_store()
    staged = stage(store)
    for block in range(0, 100, 2):
        staged.write(block * BLOCK, b"x")
    with pytest.raises(ObjectTooLarge, match="an object in 50 extents needs a metadata record"):
        staged.seal()
    assert staged.failed == errno.EFBIG
    staged.abandon()
    check_space(store)


def test_an_unmodified_view_is_not_published() -> None:
    store = new_store()
    base = put(store, b"name", b"base")
    for staged in (stage(store, base), store.stage_in_place(base)):
        staged.seal()
        assert staged.sealed
        assert not staged.modified
        with pytest.raises(StagedFailed, match="nothing to publish"):
            store.publish(staged, namespace(store), b"name")
        with pytest.raises(StagedFailed):
            store.publish_in_place(staged)
        staged.abandon()
    assert named(store, b"name") == b"base"
    check_space(store)


def test_a_view_has_the_attributes_of_its_base() -> None:
    store = new_store()
    base = put(store, b"name", b"base")
    store.set_xattr(base, b"user.a", b"1")
    store.set_attributes(base, mode=0o601, uid=5, gid=6, mtime_ns=7)
    view = stage(store, base)
    a, b = view.attributes(), store.attributes(base)
    assert (a.mode, a.uid, a.gid, a.mtime_ns, a.size, a.state) == (b.mode, 5, 6, 7, 4, "staged")
    assert (view.get_xattr(b"user.a"), view.list_xattrs()) == (b"1", [b"user.a"])
    view.set_attributes(mode=0o123, atime_ns=1)
    view.set_xattr(b"user.b", b"2", create=True)
    view.remove_xattr(b"user.a")
    with pytest.raises(HcfsError) as refused:
        view.remove_xattr(b"user.a")
    assert refused.value.errno == errno.ENODATA
    assert (view.attributes_changed, view.xattrs_changed) == (True, True)
    assert view.attributes().mode == stat.S_IFREG | 0o123
    view.set_attributes(mtime_ns=9)
    view.write(0, b"B")
    assert view.attributes().mtime_ns > 9
    view.seal()
    oid = store.publish(view, namespace(store), b"name")
    a = store.attributes(oid)
    assert (a.mode, a.uid, a.gid, a.atime_ns) == (stat.S_IFREG | 0o123, 5, 6, 1)
    assert store.list_xattrs(oid) == [b"user.b"]
    assert named(store, b"name") == b"Base"


def test_content_in_place_keeps_the_id_and_names() -> None:
    store = new_store()
    oid = put(store, b"a.lock", content(0, 3 * BLOCK))
    store.link(oid, namespace(store), b"b.lock")
    store.commit()
    reader = store.pin(oid)
    staged = store.stage_in_place(oid)
    assert staged.id == oid
    staged.write(BLOCK, b"pid 1")
    store.set_attributes(oid, mode=0o600)
    staged.seal()
    assert store.publish_in_place(staged) == oid
    expected = bytearray(content(0, 3 * BLOCK))
    expected[BLOCK : BLOCK + 5] = b"pid 1"
    assert get(store, oid) == expected
    assert bytes(store.read(reader, 0, 1 << 20)) == content(0, 3 * BLOCK)
    assert store.attributes(oid).mode == stat.S_IFREG | 0o600
    check_space(store)
    reader.release()
    store.commit()
    check_space(store)
    found = again(store)
    assert get(found, oid) == expected
    assert len(found.names_of(oid)) == 2


def test_content_in_place_of_an_object_that_is_gone() -> None:
    store = new_store()
    oid = put(store, b"a.lock", b"1")
    staged = store.stage_in_place(oid)
    staged.write(0, b"2")
    staged.seal()
    store.unlink(namespace(store), b"a.lock")
    with pytest.raises(StagedFailed, match="is gone"):
        store.publish_in_place(staged)
    staged.abandon()
    store.commit()
    check_space(store)
    assert store.usage().used == 0


def written(staged: Staged, *parts: bytes) -> None:
    for part in parts:
        staged.write(staged.size, part)
    staged.seal()


# --- failing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 3 * GRANULE])
def test_a_failed_write_fails_the_object_for_good(size: int) -> None:
    store, device = watched_store()
    staged = stage(store)
    fault = Fault("write", store.superblock.data_start * BLOCK, times=1)
    device.hooks.append(fault)
    with pytest.raises(DeviceError):
        written(staged, content(0, size))
    assert (staged.failed, staged.sealed) == (errno.EIO, False)
    for call in (lambda: staged.write(0, b"x"), staged.seal, lambda: staged.truncate(0)):
        with pytest.raises(StagedFailed, match="failed before"):
            call()
    with pytest.raises(StagedFailed):
        store.publish(staged, namespace(store), b"name")
    staged.abandon()
    check_space(store)
    assert (store.state, store.counters.device_errors) == ("ok", 1)
    put(store, b"name", content(0, size))
    assert named(store, b"name") == content(0, size)


def test_a_damaged_base_fails_the_view_and_not_the_reader() -> None:
    store = new_store()
    base = put(store, b"name", content(0, 2 * GRANULE))
    (extent,) = store.content.extents_of(base)
    store.device.contents[extent.block * BLOCK] ^= 1  # type: ignore[attr-defined]
    view = stage(store, base)
    view.write(GRANULE, b"x")
    with pytest.raises(ChecksumMismatch):
        view.read(0, 10)
    assert not view.failed
    with pytest.raises(ChecksumMismatch):
        view.seal()
    assert view.failed == errno.EIO
    view.abandon()
    check_space(store)


def test_an_unexpected_error_fails_the_object_too(monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store()
    staged = stage(store)

    def broken(*_: object) -> None:
        raise IndexError("a bug")

    monkeypatch.setattr(staged, "_write_blocks", broken)
    with pytest.raises(IndexError):
        staged.write(0, bytes(1 << 20))
    assert staged.failed == errno.EIO
    staged.abandon()
    check_space(store)


def test_a_full_device_fails_the_object_and_its_space_comes_back() -> None:
    store = new_store()
    staged = stage(store)
    with pytest.raises(NoSpace):
        written(staged, *[bytes(1 << 20)] * 100)
    assert staged.failed == errno.ENOSPC
    check_space(store, staged)
    staged.abandon()
    check_space(store)
    assert store.usage().free == store.usage().capacity


# --- several threads -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_threads_write_parts_of_one_object(seed: int) -> None:
    """Interleaved pieces of odd lengths, through cache and past it, with reads and seals among them."""
    store, rng = new_store(), random.Random(seed)
    size = 8 * GRANULE + 321
    model = content(seed, size)
    staged = stage(store)
    cuts = sorted({0, size, *(rng.randrange(size) for _ in range(60)), *range(0, size, 2 * GRANULE)})
    parts = list(itertools.pairwise(cuts))
    rng.shuffle(parts)
    stop = threading.Event()

    def reader() -> None:
        while not stop.is_set():
            at = rng.randrange(size)
            found = bytes(staged.read(at, 5000))
            assert all(a in (0, b) for a, b in zip(found, model[at : at + 5000], strict=False))

    def sealer() -> None:
        while not stop.is_set():
            staged.seal()
            time.sleep(0.001)

    background = [in_thread(reader), in_thread(sealer)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda part: staged.write(part[0], model[part[0] : part[1]]), parts))
    stop.set()
    for future in background:
        future.result(20)
    staged.seal()
    check_space(store, staged)
    assert get(store, store.publish(staged, namespace(store), b"name")) == model


def test_overlapping_writes_leave_one_of_them_in_each_block() -> None:
    store = new_store()
    for number in range(10):
        staged = stage(store)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda c, s=staged: s.write(0, bytes([c]) * 4 * GRANULE), range(1, 5)))  # type: ignore[misc]
        staged.seal()
        data = get(store, store.publish(staged, namespace(store), b"%d" % number))
        assert all(len(set(data[at : at + BLOCK])) == 1 for at in range(0, len(data), BLOCK))


def test_a_seal_waits_for_writes_under_way_and_holds_off_others() -> None:
    """Otherwise it could give back the blocks that a write is on its way to."""
    store, device = watched_store()
    staged = stage(store)
    gate = Gate("write", length=4 * GRANULE)
    device.hooks.append(gate)
    first = in_thread(lambda: staged.write(0, content(1, 4 * GRANULE)))
    assert gate.reached.wait(20)
    sealing, other = in_thread(staged.seal), in_thread(staged.seal)
    with pytest.raises(TimeoutError):
        sealing.result(0.05)
    with stays_unfinished(lambda: staged.write(4 * GRANULE, content(2, GRANULE))):
        assert not staged.sealed
        gate.opened.set()
        first.result(20)
        sealing.result(20)
        other.result(20)
    staged.seal()
    check_space(store, staged)
    assert get(store, store.publish(staged, namespace(store), b"n")) == content(1, 4 * GRANULE) + content(2, GRANULE)


def test_a_seal_that_copies_the_base_does_not_undo_a_write() -> None:
    store, device = watched_store()
    base = put(store, b"name", content(0, 32 * GRANULE))
    view = stage(store, base)
    view.write(30 * GRANULE, b"first")
    gate = Gate("read")
    device.hooks.append(gate)
    sealing = in_thread(view.seal)
    assert gate.reached.wait(20)
    with stays_unfinished(lambda: view.write(GRANULE, content(1, GRANULE))):
        gate.opened.set()
        sealing.result(20)
    view.seal()
    expected = bytearray(content(0, 32 * GRANULE))
    expected[GRANULE : 2 * GRANULE] = content(1, GRANULE)
    expected[30 * GRANULE : 30 * GRANULE + 5] = b"first"
    assert get(store, store.publish(view, namespace(store), b"name")) == expected


def test_a_change_that_passed_the_first_check_is_refused_after_the_end() -> None:
    store = new_store()
    staged = stage(store)
    staged.write(0, b"x")
    staged.seal()
    with staged._operation():
        store.publish(staged, namespace(store), b"name")
        with pytest.raises(StagedFailed), staged._change(0, 10):
            pass
        with pytest.raises(StagedFailed), staged._alone():
            pass
    check_space(store)
    assert get(store, staged.id) == b"x"


def test_a_read_that_the_publishing_overtakes_is_refused() -> None:
    store, device = watched_store()
    staged = stage(store)
    staged.write(0, content(0, 4 * GRANULE))
    staged.seal()
    gate = Gate("read")
    device.hooks.append(gate)
    reading = in_thread(lambda: staged.read(0, 100))
    assert gate.reached.wait(20)
    store.publish(staged, namespace(store), b"name")
    gate.opened.set()
    with pytest.raises(StagedFailed, match="has ended"):
        reading.result(20)


def test_abandoning_frees_the_space_when_the_writes_under_way_have_ended() -> None:
    store, device = watched_store()
    staged = stage(store)
    gate = Gate("write", length=4 * GRANULE)
    device.hooks.append(gate)
    writing = in_thread(lambda: staged.write(0, bytes(4 * GRANULE)))
    assert gate.reached.wait(20)
    staged.abandon()
    assert store.usage().staged >= 4 * GRANULE
    check_held = store.usage().staged
    gate.opened.set()
    writing.result(20)
    assert check_held > store.usage().staged == 0
    check_space(store)


def test_a_seal_that_waits_is_refused_when_the_object_is_abandoned() -> None:
    store, device = watched_store()
    staged = stage(store)
    gate = Gate("write", length=4 * GRANULE)
    device.hooks.append(gate)
    writing = in_thread(lambda: staged.write(0, bytes(4 * GRANULE)))
    assert gate.reached.wait(20)
    sealing = in_thread(staged.seal)
    with pytest.raises(TimeoutError):
        sealing.result(0.05)
    staged.abandon()
    gate.opened.set()
    writing.result(20)
    with pytest.raises(StagedFailed):
        sealing.result(20)
    check_space(store)


def test_many_objects_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads stage, publish, replace, read, unlink and abandon on one store whose space doesn't suffice for all."""
    monkeypatch.setattr(staged_module, "CACHED_BLOCKS", 4)
    store = new_store(max_objects=100)
    kv = namespace(store)
    names = [b"%d" % number for number in range(6)]

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for step in range(25):
            name = rng.choice(names)
            kind = rng.random()
            try:
                if kind < 0.6:
                    staged = stage(store)
                    try:
                        fill(staged, (seed, step), rng)
                        staged.seal()
                        if rng.random() < 0.8:
                            store.publish(staged, kv, name)
                    finally:
                        staged.abandon()
                elif kind < 0.9:
                    oid = store.lookup(kv, name)
                    if oid is not None:
                        whole(get(store, oid))
                elif kind < 0.95:
                    store.unlink(kv, name)
                else:
                    store.commit()
            except (NoSpace, NoSuchName, NoSuchObject):
                pass

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    store.commit()
    check_space(store)
    found = again(store)
    for name, oid in found.list_directory(kv):
        assert whole(get(found, oid)) == get(store, store.lookup(kv, name) or 0)[:8]


def fill(staged: Staged, key: object, rng: random.Random) -> None:
    """Write an object that says of itself whether it is whole, in pieces of any order."""
    body = content(key, rng.choice((10, 5000, GRANULE, 300_000)))
    data = crc32c(body).to_bytes(8, "little") + body
    cuts = sorted({0, len(data), *(rng.randrange(len(data)) for _ in range(4))})
    parts = list(itertools.pairwise(cuts))
    rng.shuffle(parts)
    for start, end in parts:
        staged.write(start, data[start:end])


def whole(data: bytes) -> bytes:
    assert crc32c(data[8:]).to_bytes(8, "little") == data[:8]
    return data[:8]


class Lingering(MemoryDevice):
    """A device whose long writes are on the medium some time before they return."""

    def __init__(self, contents: bytes, length: int) -> None:
        super().__init__(len(contents))
        self.contents[:] = contents
        self.length = length
        self.reached, self.go = threading.Event(), threading.Event()

    def write(self, offset: int, data: Buffer) -> None:
        super().write(offset, data)
        if memoryview(data).nbytes == self.length:
            self.reached.set()
            assert self.go.wait(20)


def test_short_writes_that_wait_to_be_written_do_not_come_over_a_long_one() -> None:
    """Two blocks were written and are in memory; a long write covers them; while it is on its way, other short writes
    fill the memory, and all that is in it is written out."""
    long = content("long", 17 * BLOCK)
    device = Lingering(bytes(new_device().contents), len(long))
    store = recover(device)
    staged = stage(store)
    staged.write(0, content("all", 40 * BLOCK))
    staged.write(10 * BLOCK, content("short", 2 * BLOCK))
    writing = in_thread(lambda: staged.write(9 * BLOCK, long))
    assert device.reached.wait(20)
    for block in range(60, 60 + staged_module.CACHED_BLOCKS + 1):
        staged.write(block * BLOCK, content(block, BLOCK))
    part = in_thread(lambda: staged.write(20 * BLOCK + 5, b"part"))
    time.sleep(0.05)
    assert not part.done()
    device.go.set()
    writing.result(20)
    part.result(20)
    expected = bytearray(long)
    expected[11 * BLOCK + 5 : 11 * BLOCK + 9] = b"part"
    assert bytes(staged.read(9 * BLOCK, len(long))) == expected
    staged.seal()
    oid = store.publish(staged, store.lookup(1, b"kv") or 0, b"x")
    data = get(store, oid)
    assert data[9 * BLOCK : 26 * BLOCK] == expected
    assert data[: 9 * BLOCK] == content("all", 40 * BLOCK)[: 9 * BLOCK]
