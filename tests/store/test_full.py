"""Full stores: who is asked to make room, how, and what is said when nothing helps."""

from __future__ import annotations

import errno
import threading

import pytest
from store.rig import GRANULE, again, check_space, content, get, named, namespace, new_store, put, stage

from hcfs.store import Store
from hcfs.store.errors import MetadataFull, NoSpace


class Evictor:
    """Evicts the oldest file, as the cache above does; notes what it was asked, and that no lock is held."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.asked: list[int] = []
        store.ledger.make_room = self

    def __call__(self, blocks: int) -> bool:
        self.asked.append(blocks)
        self._nobody_holds_the_locks()
        for oid, *_ in list(self.store.census.files_by_access()):
            if self.store.evict(oid) is not None:
                self.store.commit()
                return True
        return False

    def _nobody_holds_the_locks(self) -> None:
        def other() -> None:
            for lock in (self.store.ledger.lock, self.store.ledger.commit_lock):
                assert lock.acquire(timeout=5)
                lock.release()

        thread = threading.Thread(target=other)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        assert not self.store.ledger.lock._is_owned()  # type: ignore[attr-defined]


def test_a_full_device_says_so() -> None:
    store = new_store()
    put(store, b"a", bytes(8 << 20))
    with pytest.raises(NoSpace, match=r"memory is full: \d+ bytes are wanted, \d+ are free") as refused:
        put(store, b"b", bytes(3 << 20))
    assert refused.value.errno == errno.ENOSPC
    assert named(store, b"a") == bytes(8 << 20)


def test_room_is_made_for_data() -> None:
    store = new_store()
    evictor = Evictor(store)
    for number in range(12):
        put(store, b"%d" % number, content(number, 3 << 20))
    assert len(evictor.asked) >= 9
    assert all(blocks > 0 for blocks in evictor.asked)
    assert named(store, b"11") == content(11, 3 << 20)
    check_space(store)
    store.commit()
    assert named(again(store), b"11") == content(11, 3 << 20)


def test_when_all_is_evicted_and_it_still_does_not_fit() -> None:
    store = new_store()
    evictor = Evictor(store)
    put(store, b"a", bytes(3 << 20))
    staged = stage(store)
    with pytest.raises(NoSpace):  # noqa: PT012
        for step in range(20):
            staged.write(step << 20, bytes(1 << 20))
    staged.abandon()
    assert len(evictor.asked) == 2
    store.commit()
    assert store.usage().free == store.usage().capacity
    check_space(store)


def test_pinned_files_are_not_evicted() -> None:
    store = new_store()
    Evictor(store)
    pin = store.pin(put(store, b"a", content(0, 6 << 20)))
    with pytest.raises(NoSpace):
        put(store, b"b", bytes(6 << 20))
    assert bytes(store.read(pin, 0, GRANULE)) == content(0, 6 << 20)[:GRANULE]
    pin.release()
    put(store, b"b", bytes(6 << 20))


def test_room_is_made_for_rows() -> None:
    store = new_store(max_objects=20)
    evictor = Evictor(store)
    for number in range(60):
        put(store, b"%d" % number, b"x")
        assert store.usage().objects <= 20
    assert evictor.asked == [0] * (60 - 18)
    check_space(store)


def test_the_limit_of_objects_says_so() -> None:
    store = new_store(max_objects=20)
    kv = namespace(store)
    empty = stage(store)
    empty.seal()
    store.publish(empty, kv, b"empty")
    for number in range(17):
        put(store, b"%d" % number, b"x")
    waiting = stage(store)
    with pytest.raises(MetadataFull, match=r"20 objects, its limit \(max_objects\).*--max-objects") as refused:
        waiting.write(0, b"x")
    assert (refused.value.errno, waiting.failed) == (errno.ENOSPC, errno.ENOSPC)
    waiting.abandon()
    unwritten = stage(store)
    for call in (
        lambda: store.mkdir(kv, b"d", 0o755, 0, 0),
        lambda: store.symlink(kv, b"s", b"x", 0, 0),
        lambda: store.create_empty(kv, b"f", 0o644, 0, 0),
        store.staging.require_row,
        unwritten.seal,
    ):
        with pytest.raises(MetadataFull, match="remove objects"):
            call()
    unwritten.abandon()
    store.unlink(kv, b"empty")
    store.staging.require_row()
    begun = stage(store)
    with pytest.raises(MetadataFull):
        store.mkdir(kv, b"d", 0o755, 0, 0)  # the last row is for what was begun
    begun.seal()
    begun.abandon()
    store.mkdir(kv, b"d", 0o755, 0, 0)
    assert (store.metadata_room.reserved_objects, store.metadata_room.unreserved_objects) == (0, 0)
    check_space(store)


def test_what_is_sealed_has_its_row_for_certain() -> None:
    store = new_store(max_objects=20)
    kv = namespace(store)
    sealed = []
    for _ in range(18):
        staged = stage(store)
        staged.write(0, b"x")
        staged.seal()
        sealed.append(staged)
    with pytest.raises(MetadataFull):
        store.mkdir(kv, b"d", 0o755, 0, 0)
    sealed.pop().abandon()
    store.mkdir(kv, b"d", 0o755, 0, 0)
    for number, staged in enumerate(sealed):
        store.publish(staged, kv, b"%d" % number)
    assert store.usage().objects == 20
    assert (store.metadata_room.reserved_bytes, store.metadata_room.reserved_objects) == (0, 0)


def test_more_staged_objects_than_there_can_be_rows() -> None:
    store = new_store(max_objects=20)
    base = put(store, b"a", b"base")
    store.ledger.index.max_slot = 30
    staged = []
    with pytest.raises(MetadataFull, match="objects are in use or being written"):  # noqa: PT012
        for _ in range(40):
            staged.append(stage(store, base))
    assert len(staged) == 27
    assert len(store.retention.pins()) == store.usage().staged_objects == len(staged), "the refused one holds no pin"
    for one in staged:
        one.abandon()
    assert store.retention.pins() == []
    stage(store, base).abandon()
    check_space(store)


def test_a_full_metadata_region_says_so() -> None:
    store = new_store(max_objects=64)
    kv = namespace(store)
    fillers = [put(store, b"%d" % number, b"x") for number in range(30)]
    for size in (60_000, 1_000):
        with pytest.raises(MetadataFull, match=r"the metadata region is full.*--max-objects"):  # noqa: PT012
            for oid in fillers:
                store.set_xattr(oid, b"user.%d" % size, bytes(size))
    for call in (
        lambda: store.set_xattr(kv, b"user.b", bytes(60_000)),
        lambda: store.mkdir(kv, b"n" * 1000, 0o755, 0, 0),
        lambda: store.rename(kv, b"29", kv, b"n" * 1010),
        lambda: store.link(fillers[0], kv, b"n" * 1010),
    ):
        with pytest.raises(MetadataFull):
            call()
    staged = stage(store, xattrs={b"user.a": bytes(60_000)})
    with pytest.raises(MetadataFull, match="metadata region is full"):
        staged.write(0, b"x")
    staged.abandon()
    store.commit()
    store.checkpoint()
    assert again(store).state == "ok"
    store.unlink(kv, b"0")
    store.set_xattr(kv, b"user.b", bytes(50_000))
    check_space(store)


def test_a_view_of_an_object_has_its_row_with_its_first_byte() -> None:
    """Until then it may be dropped unmodified, and a full store refuses no such open."""
    store = new_store(max_objects=20)
    base = put(store, b"base", b"old")
    for number in range(17):
        put(store, b"%d" % number, b"x")
    view = stage(store, base)
    with pytest.raises(MetadataFull, match="20 objects"):
        view.write(0, b"n")
    view.abandon()
    store.unlink(namespace(store), b"0")
    view = stage(store, base)
    view.write(0, b"n")
    with pytest.raises(MetadataFull):
        store.staging.require_row()
    view.seal()
    store.publish(view, namespace(store), b"base")
    assert named(store, b"base") == b"nld"
    room = store.metadata_room
    assert (room.reserved_bytes, room.reserved_objects, room.unreserved_objects) == (0, 0, 0)


def test_a_full_store_is_told_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    store = new_store(max_objects=20)
    for number in range(18):
        put(store, b"%d" % number, b"x")
    for _ in range(5):
        with pytest.raises(MetadataFull):
            stage(store).write(0, b"x")
    (line,) = [record.getMessage() for record in caplog.records]
    assert "max_objects" in line
    assert "nothing can be evicted; remove objects, or format with a larger --max-objects" in line


def test_quarantine_finds_room_for_its_note() -> None:
    """A note is metadata too, and a full region mustn't keep what is damaged among the hits."""
    store = new_store(max_objects=64)
    kv = namespace(store)
    oids = []
    with pytest.raises(MetadataFull):  # noqa: PT012
        for number in range(64):
            oids.append(put(store, b"%d" % number + b"n" * 1000, b"x"))
            store.set_xattr(oids[-1], b"user.a", bytes(20_000))
    with pytest.raises(MetadataFull):  # noqa: PT012
        for number in range(10_000):
            store.set_xattr(kv, b"user.%d" % number, bytes(100))
    for oid in oids:
        assert store.quarantine(oid, "a test")
    store.checkpoint()
    found = again(store)
    assert found.state == "ok"
    assert [each.reason for each in found.removals.quarantined()] == ["a test"] * len(oids)
    assert found.ledger.index.checkpoint_bytes <= found.superblock.metadata_limit


def test_a_fragmented_device_gives_an_object_in_pieces() -> None:
    store = new_store()
    capacity = store.usage().capacity
    small = [put(store, b"%d" % number, content(number, 256 << 10)) for number in range(capacity // (256 << 10))]
    for oid in small[::2]:
        store.evict(oid)
    store.commit()
    data = content("big", len(small[::2]) * (256 << 10) - (64 << 10))
    oid = put(store, b"big", data)
    assert len(store.content.extents_of(oid)) > 5
    assert get(store, oid) == data
    check_space(store)
    store.commit()
    assert named(again(store), b"big") == data
