"""Recovery from damaged metadata: what is used, what is lost, and that it is said."""

from __future__ import annotations

import random
import stat
from collections.abc import Callable

import pytest
from store.devices import Fault, Watched
from store.rig import GRANULE, check_space, content, get, named, namespace, new_device, put, recover, stage, tree_of

from hcfs.device import BufferPool, DeviceError, MemoryDevice
from hcfs.store import BLOCK, ROOT_ID, Extent, UnrecoveredStore
from hcfs.store.check import check
from hcfs.store.errors import ChecksumMismatch, CorruptMetadata, NoSuchObject
from hcfs.store.region_header import read_headers
from hcfs.store.superblock import read_superblock
from hcfs.store.table import Row


def copy(device: MemoryDevice) -> MemoryDevice:
    return MemoryDevice.holding(device.contents)


def region_start(device: MemoryDevice, number: int) -> int:
    return read_superblock(device).regions[number] * BLOCK


def generations(device: MemoryDevice) -> list[int | None]:
    superblock = read_superblock(device)
    headers = [read_headers(device, superblock, number).header for number in (0, 1)]
    return [header.generation if header else None for header in headers]


class Batches:
    """A store whose commits are remembered by their places, so that a test can damage one."""

    def __init__(self) -> None:
        self.device = new_device()
        self.store = recover(self.device)
        self.kv = namespace(self.store)
        self.places: dict[str, tuple[int, int]] = {}
        self.commit("namespace")

    def commit(self, name: str) -> None:
        assert self.store.ledger.writer is not None
        start = region_start(self.device, self.store.ledger.region)
        at = start + self.store.ledger.writer.at
        self.store.commit()
        self.places[name] = (at, start + self.store.ledger.writer.at)

    def damaged(self, *names: str) -> MemoryDevice:
        device = copy(self.device)
        for name in names:
            device.contents[self.places[name][0] + 40] ^= 1
        return device


# --- sound metadata ------------------------------------------------------------------------------------------------


def test_a_fresh_store_is_empty_and_sound() -> None:
    device = new_device()
    before = bytes(device.contents)
    store = recover(device)
    assert (store.state, store.state_reason) == ("ok", "")
    assert store.list_directory(ROOT_ID) == []
    assert store.usage().free == store.usage().capacity
    assert (store.usage().objects, store.usage().files) == (1, 0)
    assert device.contents == before
    assert generations(device) == [1, 0]
    assert check(device).clean


def test_recovery_flushes_what_it_read_and_writes_nothing() -> None:
    device = new_device()
    store = recover(device)
    put(store, b"a", b"1")
    store.commit()
    watched = Watched(device)
    recover(watched)
    assert watched.calls == [("flush", 0, 0)]
    watched.calls.clear()
    recover(watched, read_only=True)
    assert watched.calls == []
    with pytest.raises(DeviceError):
        recover(Watched(device, Fault("flush")))


def test_a_device_that_is_write_protected_is_read() -> None:
    device = new_device()
    store = recover(device)
    put(store, b"a", b"1")
    store.close()
    store = recover(MemoryDevice.holding(device.contents, read_only=True))
    assert (store.state, store.state_reason) == ("read-only", "mounted read-only")
    assert get(store, next(oid for oid, *_ in store.census.files_by_access())) == b"1"


def test_an_unrecovered_store_says_who_it_is() -> None:
    device = new_device()
    assert UnrecoveredStore.open(device, None).superblock == read_superblock(device)  # type: ignore[arg-type]


# --- regions that can't be used ------------------------------------------------------------------------------------


def two_states() -> tuple[MemoryDevice, dict[bytes, tuple[object, ...]]]:
    """A device whose region 1 is current, and what region 0 still says."""
    device = new_device()
    store = recover(device)
    put(store, b"old", content(0, 3 * GRANULE))
    store.commit()
    older = tree_of(store)
    store.checkpoint()
    put(store, b"new", content(1, GRANULE))
    store.commit()
    assert store.ledger.region == 1
    return device, older


def headers_of(device: MemoryDevice, number: int) -> tuple[int, int]:
    """Where a region's header and its copy are, in bytes."""
    start = region_start(device, number)
    return start, start + read_superblock(device).header_copy * BLOCK


def flip_headers(device: MemoryDevice) -> None:
    for at in headers_of(device, 1):
        device.contents[at + 30] ^= 1


def erase_headers(device: MemoryDevice) -> None:
    for at in headers_of(device, 1):
        device.contents[at : at + BLOCK] = bytes(BLOCK)


def flip_page(device: MemoryDevice) -> None:
    device.contents[region_start(device, 1) + BLOCK + 50] ^= 1


@pytest.mark.parametrize("damage", [flip_headers, erase_headers])
def test_the_older_region_is_used_and_that_is_said(damage: Callable[[MemoryDevice], None]) -> None:
    device, older = two_states()
    damage(device)
    report = check(copy(device))
    assert [problem for problem in report.problems if "which may be older" in problem.detail]
    untouched = bytes(device.contents)
    store = recover(device, read_only=True)
    assert store.state == "read-only"
    assert "region 0 (generation 1) is used, which may be older" in store.state_reason
    assert device.contents == untouched
    store = recover(device)
    assert (store.state, store.ledger.region) == ("degraded", 1)
    assert "which may be older" in store.state_reason
    assert tree_of(store) == older
    check_space(store)
    # It was mended at once.
    put(store, b"more", b"1")
    store.commit()
    store = recover(device)
    assert store.state == "ok"
    assert named(store, b"more") == b"1"
    assert check(device, data=True).clean


def test_a_damaged_checkpoint_costs_nothing_that_both_logs_have() -> None:
    device, _ = two_states()
    latest = tree_of(recover(MemoryDevice.holding(device.contents)))
    flip_page(device)
    report = check(copy(device))
    assert [problem for problem in report.problems if "and the log behind that checkpoint" in problem.detail]
    store = recover(device)
    assert (store.state, store.ledger.region) == ("degraded", 1)
    assert tree_of(store) == latest
    check_space(store)
    put(store, b"more", b"1")
    store.commit()
    store = recover(device)
    assert store.state == "ok"
    assert named(store, b"more") == b"1"
    assert check(device, data=True).clean


def test_a_damaged_checkpoint_of_a_full_log_costs_what_it_alone_had() -> None:
    """The transactions that didn't fit the older log are in the damaged pages only; those behind them are there."""
    device = new_device()
    store = recover(device)
    put(store, b"old", content(0, GRANULE))
    store.commit()
    number = 0
    while not store.counters.checkpoints:
        number += 1
        put(store, b"%d" % number, b"1")
        store.set_xattr(namespace(store), b"user.fill", bytes(60_000))
        store.commit()
    put(store, b"new", content(1, GRANULE))
    store.commit()
    flip_page(device)
    store = recover(device)
    assert "are lost" in store.state_reason
    assert named(store, b"old") == content(0, GRANULE)
    assert named(store, b"new") == content(1, GRANULE)
    assert named(store, b"1") == b"1"
    assert named(store, b"%d" % number) is None
    check_space(store)
    assert recover(device).state == "ok"


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("kind", ["flipped", "erased", "former"])
def test_one_damaged_header_costs_nothing(number: int, place: int, kind: str) -> None:
    device = new_device()
    store, images = recover(device), []
    for name in (b"a", b"b", b"c", b"d"):
        put(store, name, content(name.decode(), GRANULE))
        store.checkpoint()
        images.append(bytes(device.contents))
    put(store, b"new", content(1, GRANULE))
    store.commit()
    latest, whole = tree_of(store), bytes(device.contents)
    at = headers_of(device, number)[place]
    if kind == "former":
        # A write that never arrived. Of the copy that is what a crash may leave, and no damage.
        device.contents[at : at + BLOCK] = images[1][at : at + BLOCK]
    elif kind == "erased":
        device.contents[at : at + BLOCK] = bytes(BLOCK)
    else:
        device.contents[at + 30] ^= 1
    assert device.contents != whole
    told = (kind, place) != ("former", 1)
    assert check(device).clean is not told
    untouched = bytes(device.contents)
    store = recover(device, read_only=True)
    assert (store.state, tree_of(store)) == ("read-only", latest)
    assert device.contents == untouched
    store = recover(device)
    assert (store.state, tree_of(store)) == ("degraded" if told else "ok", latest)
    assert ("header" in store.state_reason) is told
    assert device.contents == whole, "it is mended at once"
    assert recover(device).state == "ok"


def test_a_damaged_header_and_a_damaged_log() -> None:
    """The copy leads to the log, whose damage is dealt with as ever; a second mount finds nothing."""
    batches = Batches()
    batches.store.checkpoint()
    for name in (b"a", b"b", b"c"):
        put(batches.store, name, name)
        batches.commit(name.decode())
    device = batches.damaged("b")
    device.contents[headers_of(device, 1)[0]] ^= 1
    store = recover(device)
    assert store.state == "degraded"
    assert [named(store, name) for name in (b"a", b"b", b"c")] == [b"a", None, b"c"]
    store = recover(device)
    assert store.state == "ok"
    assert check(device, data=True).clean


@pytest.mark.parametrize("number", [0, 1])
def test_nothing_is_written_while_a_header_cannot_be_read(number: int) -> None:
    """It may say something newer than its copy, after a crash between the two. The copy's state is shown."""
    device, _ = two_states()
    latest = tree_of(recover(copy(device)))
    start = region_start(device, number)
    watched = Watched(device, Fault("read", start, start + 1))
    store = recover(watched)
    assert (store.state, tree_of(store)) == ("read-only", latest)
    assert "can't be read" in store.state_reason
    assert watched.calls == []
    assert not check(watched).clean
    # Somebody says to go on; the header is written, which lets a drive give it another place.
    store = UnrecoveredStore.open(watched, BufferPool(4 << 20)).recover(mend_unreadable=True)
    assert (store.state, tree_of(store)) == ("degraded", latest)
    assert [at for operation, at, _ in watched.calls if operation == "write"] == [start]
    assert recover(device).state == "ok"


def test_a_copy_of_a_header_that_cannot_be_read_costs_nothing() -> None:
    """It never says anything newer than the header."""
    device, _ = two_states()
    latest = tree_of(recover(copy(device)))
    _, at = headers_of(device, 1)
    watched = Watched(device, Fault("read", at, at + 1))
    store = recover(watched)
    assert (store.state, tree_of(store)) == ("degraded", latest)
    assert [place for operation, place, _ in watched.calls if operation == "write"] == [at]


def test_a_copy_that_a_crash_left_older_is_brought_up_to_date_before_the_log_goes_on() -> None:
    """Otherwise damage to the header would cost what came after the crash."""
    device = new_device()
    watched = Watched(device)
    store = recover(watched)
    put(store, b"old", content(0, GRANULE))
    store.commit()
    states: list[bytes] = []
    _, at = headers_of(device, 1)
    watched.hooks.append(
        lambda operation, offset, length: (
            states.append(bytes(device.contents)) if (operation, offset) == ("write", at) else None
        )
    )
    store.checkpoint()
    (crashed,) = states
    device = MemoryDevice.holding(crashed)
    assert check(device).clean
    store = recover(device)
    assert (store.state, store.ledger.region) == ("ok", 1)
    put(store, b"new", content(1, GRANULE))
    store.commit()
    latest = tree_of(store)
    device.contents[region_start(device, 1) + 30] ^= 1
    store = recover(device)
    assert (store.state, tree_of(store)) == ("degraded", latest)


def test_a_copy_that_an_unmounted_crash_left_older_makes_no_old_region_current() -> None:
    """The crash, and damage to the header before anybody mounted it: both regions hold the same state."""
    device = new_device()
    watched = Watched(device)
    store = recover(watched)
    put(store, b"old", content(0, GRANULE))
    store.checkpoint()
    put(store, b"new", content(1, GRANULE))
    store.commit()
    states: list[bytes] = []
    _, at = headers_of(device, 0)
    watched.hooks.append(
        lambda operation, offset, length: (
            states.append(bytes(device.contents)) if (operation, offset) == ("write", at) else None
        )
    )
    store.checkpoint()
    device = MemoryDevice.holding(states[0])
    device.contents[region_start(device, 0) + 30] ^= 1
    found = recover(device)
    assert (found.state, tree_of(found)) == ("degraded", tree_of(store))
    assert recover(device).state == "ok"


def test_what_only_a_header_without_its_copy_leads_to_was_never_acknowledged() -> None:
    """A commit that finds the log full writes a checkpoint instead, and returns when the header's copy is durable. A
    crash before that, and damage to the header before anybody mounted, leave what was acknowledged before."""
    device = new_device()
    watched = Watched(device)
    store = recover(watched)
    states: list[bytes] = []
    _, at = headers_of(device, 1)
    watched.hooks.append(
        lambda operation, offset, length: (
            states.append(bytes(device.contents)) if (operation, offset) == ("write", at) else None
        )
    )
    acknowledged = tree_of(store)
    while not states:
        acknowledged = tree_of(store)
        store.set_xattr(namespace(store), b"user.fill", random.Random(store.ledger.next_sequence).randbytes(60_000))
        store.commit()
    whole = MemoryDevice.holding(states[0])
    damaged = copy(whole)
    damaged.contents[region_start(device, 1) + 30] ^= 1
    found = recover(damaged)
    assert (found.state, tree_of(found)) == ("degraded", acknowledged)
    found = recover(whole)
    assert (found.state, tree_of(found)) == ("ok", tree_of(store))


def test_objects_whose_blocks_were_given_out_since_do_not_verify() -> None:
    """The older state names blocks that a younger object overwrote: EIO, never its bytes."""
    device = new_device()
    store = recover(device)
    old = put(store, b"old", content(0, GRANULE))
    store.commit()
    store.checkpoint()
    store.evict(old)
    store.commit()
    put(store, b"new", content(1, GRANULE))
    store.commit()
    flip_headers(device)
    store = recover(device)
    with pytest.raises(ChecksumMismatch):
        named(store, b"old")


def test_frames_of_a_damaged_region_are_not_taken_for_new_ones() -> None:
    """The lost region's generation isn't used again: else its log would continue the next one's."""
    device, older = two_states()
    store = recover(device)
    for number in range(20):
        store.mkdir(namespace(store), b"lost%d" % number, 0o755, 0, 0)
        store.commit()
    flip_headers(device)
    store = recover(device)
    assert tree_of(store) == older
    found = recover(copy(device))
    assert (found.state, tree_of(found)) == ("ok", older)
    assert generations(device)[1] != 2


def test_a_checkpoint_that_a_crash_ended_leaves_no_frames_that_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its changes "since" were never durable; their numbers are higher than those that recovery goes on with."""
    device = new_device()
    watched = Watched(device)
    store = recover(watched)
    kv = namespace(store)
    for number in range(30):
        store.mkdir(kv, b"d%d" % number, 0o755, 0, 0)
        store.set_xattr(store.lookup(kv, b"d%d" % number) or 0, b"user.a", bytes(3000))
    store.commit()
    before = tree_of(store)
    crashed: list[bytes] = []
    start = region_start(device, 1)

    def hook(operation: str, offset: int, length: int) -> None:
        if operation == "write" and offset == start + BLOCK and not crashed:
            for number in range(40):
                store.set_xattr(kv, b"user.%d" % number, b"stale" * 100)
        if operation == "write" and offset == start:
            crashed.append(bytes(device.contents))

    watched.hooks.append(hook)
    for number in range(30):
        # Not durable by themselves, so that the numbers run ahead.
        store.set_xattr(store.lookup(kv, b"d%d" % number) or 0, b"user.a", bytes(4000))
    monkeypatch.setattr(store.durability, "_commit", lambda: None)
    store.checkpoint()
    device = MemoryDevice.holding(crashed[0])
    store = recover(device)
    assert (store.state, tree_of(store)) == ("ok", before)
    for number in range(28):
        store.rmdir(kv, b"d%d" % number)
    store.checkpoint()
    expected = tree_of(store)
    store = recover(copy(device))
    assert (store.state, tree_of(store)) == ("ok", expected)


def test_nothing_usable_says_so() -> None:
    device, _ = two_states()
    flip_headers(device)
    for at in headers_of(device, 0):
        device.contents[at] ^= 1
    with pytest.raises(CorruptMetadata, match=r"memory: the metadata can't be recovered.*hcfs mkfs --force"):
        recover(device)
    report = check(device)
    assert not report.clean
    assert report.problems[0].kind == "region"


def test_a_fresh_store_comes_up_from_either_region() -> None:
    """Both hold the empty store: both headers damaged cost what came since, one of them or a damaged page nothing."""
    copy_at = headers_of(new_device(), 0)[1] - region_start(new_device(), 0)
    for places, kept in (((0, copy_at), []), ((0,), [b"kv"]), ((BLOCK + 40,), [b"kv"])):
        device = new_device()
        store = recover(device)
        store.mkdir(ROOT_ID, b"kv", 0o755, 0, 0)
        store.commit()
        for at in places:
            device.contents[region_start(device, 0) + at] ^= 1
        store = recover(device)
        assert store.state == "degraded"
        assert [name for name, _ in store.list_directory(ROOT_ID)] == kept


def test_a_record_that_verifies_and_makes_no_sense() -> None:
    batches = Batches()
    batches.store.checkpoint()
    with batches.store.atomically():
        batches.store.ledger.enqueue(b"\0" * 8 + b"\xee")
    batches.store.commit()
    store = recover(batches.device)
    assert store.state == "degraded"
    assert "item of unknown kind 238" in store.state_reason
    assert store.lookup(ROOT_ID, b"kv") == batches.kv


# --- damage in the middle of the log -------------------------------------------------------------------------------


def test_damage_in_the_middle_costs_its_batch_only() -> None:
    batches = Batches()
    for name in ("a", "b", "c"):
        put(batches.store, name.encode(), content(name, GRANULE))
        batches.commit(name)
    device = batches.damaged("b")
    report = check(copy(device))
    assert any("are damaged: transactions" in problem.detail for problem in report.problems)
    untouched = bytes(device.contents)
    assert recover(device, read_only=True).lookup(batches.kv, b"c") is not None
    assert device.contents == untouched
    store = recover(device)
    assert store.state == "degraded"
    start, end = batches.places["b"]
    assert (
        f"{end - start} bytes of the metadata log at {start} are damaged: transactions 4 to 4 are lost"
        in store.state_reason
    )
    assert [named(store, name) for name in (b"a", b"b", b"c")] == [content("a", GRANULE), None, content("c", GRANULE)]
    check_space(store)
    store = recover(device)
    assert (store.state, store.ledger.region) == ("ok", 1)
    assert named(store, b"c") == content("c", GRANULE)
    assert check(device, data=True).clean


def test_of_two_objects_with_the_same_blocks_the_younger_one_stays() -> None:
    batches = Batches()
    old = put(batches.store, b"old", content(0, 2 * GRANULE))
    batches.commit("old")
    batches.store.evict(old)
    batches.commit("drop")
    stage(batches.store)  # takes the free slot: a row in the same one would replace the old row
    put(batches.store, b"new", content(1, GRANULE))
    batches.commit("new")
    device = batches.damaged("drop")
    store = recover(device)
    assert "claim the same blocks" in store.state_reason
    assert [named(store, name) for name in (b"old", b"new")] == [None, content(1, GRANULE)]
    check_space(store)
    assert recover(device).state == "ok"
    assert check(device, data=True).clean


def test_of_two_objects_with_the_same_blocks_on_a_read_only_store() -> None:
    batches = Batches()
    old = put(batches.store, b"old", content(0, 2 * GRANULE))
    batches.commit("old")
    batches.store.evict(old)
    batches.commit("drop")
    stage(batches.store)  # takes the free slot: a row in the same one would replace the old row
    put(batches.store, b"new", content(1, GRANULE))
    batches.commit("new")
    store = recover(batches.damaged("drop"), read_only=True)
    assert named(store, b"new") == content(1, GRANULE)
    with pytest.raises(ChecksumMismatch):
        get(store, old)


def test_what_lay_in_a_lost_directory_goes_too() -> None:
    batches = Batches()
    store = batches.store
    directory = store.mkdir(batches.kv, b"d", 0o755, 0, 0)
    batches.commit("d")
    inner = store.mkdir(directory, b"inner", 0o755, 0, 0)
    put(store, b"f", content(0, GRANULE), parent=inner)
    twice = put(store, b"g", content(1, GRANULE), parent=inner)
    store.link(twice, batches.kv, b"also here")
    batches.commit("inner")
    found = recover(batches.damaged("d"))
    assert found.state == "degraded"
    assert found.list_directory(batches.kv) == [(b"also here", twice)]
    assert set(found.census.objects()) == {ROOT_ID, batches.kv, twice}
    assert found.attributes(twice).nlink == 1
    assert found.usage().used == GRANULE
    check_space(found)


def test_directories_that_lie_in_each_other_are_dropped() -> None:
    batches = Batches()
    store = batches.store
    outer = store.mkdir(batches.kv, b"outer", 0o755, 0, 0)
    inner = store.mkdir(outer, b"inner", 0o755, 0, 0)
    put(store, b"f", content(0, GRANULE), parent=inner)
    batches.commit("made")
    store.rename(outer, b"inner", batches.kv, b"inner")
    batches.commit("out")
    store.rename(batches.kv, b"outer", inner, b"outer")
    batches.commit("in")
    found = recover(batches.damaged("out"))
    assert found.state == "degraded"
    assert set(found.census.objects()) == {ROOT_ID, batches.kv}
    check_space(found)


def test_nothing_is_written_while_a_block_of_the_log_cannot_be_read() -> None:
    batches = Batches()
    for name in ("a", "b"):
        put(batches.store, name.encode(), content(name, GRANULE))
        batches.commit(name)
    at = batches.places["b"][0]
    watched = Watched(batches.device, Fault("read", at, at + 1))
    store = recover(watched)
    assert store.state == "read-only"
    assert "1 blocks of the log of metadata region 0 can't be read: transactions from 4 on may" in store.state_reason
    assert [named(store, name) for name in (b"a", b"b")] == [content("a", GRANULE), None]
    assert watched.calls == []
    # It passed: nothing is lost.
    assert named(recover(copy(batches.device)), b"b") == content("b", GRANULE)
    # It doesn't pass, and somebody says so.
    store = UnrecoveredStore.open(watched, BufferPool(4 << 20)).recover(mend_unreadable=True)
    assert store.state == "degraded"
    assert [named(store, name) for name in (b"a", b"b")] == [content("a", GRANULE), None]
    assert recover(watched).state == "ok"


def test_an_unreadable_block_behind_the_log_is_said_and_costs_nothing() -> None:
    batches = Batches()
    at = batches.places["namespace"][1] + 3 * BLOCK
    store = recover(Watched(batches.device, Fault("read", at, at + 1)))
    assert store.state == "degraded"
    assert tree_of(store) == tree_of(batches.store)


# --- rows that can't be ---------------------------------------------------------------------------------------------


def test_an_extent_outside_the_data_area_is_not_believed() -> None:
    batches = Batches()
    store = batches.store
    oid = put(store, b"bad", content(0, GRANULE))
    table, slot = store.ledger.index.table, store.ledger.index.table.slot(oid)
    for number, block in enumerate((0, store.superblock.data_start - 1, store.superblock.device_blocks - 20)):
        with store.ledger.change() as transaction:
            row = Row(
                *(number + 9 << 32 | 20 + number, stat.S_IFREG | 0o644, 0, 0, 0, 5, 1, 1, 1, 1, 1),
                *((Extent(0, store.superblock.data_start + 100 + number, 1), Extent(1, block, 64)), bytes(4), b""),
            )
            transaction.put(row)
            transaction.name(batches.kv, b"n%d" % number, row.id)
    assert table.id[slot] == oid
    batches.commit("bad")
    found = recover(batches.device)
    assert found.state_reason.count("outside the data area") == 3
    assert [name for name, _ in found.list_directory(batches.kv)] == [b"bad"]
    check_space(found)


@pytest.mark.parametrize(
    "extents",
    [(Extent(0, 900, 1), Extent(0, 910, 1)), (Extent(0, 900, 3),), (Extent(1, 900, 0), Extent(1, 910, 1))],
)
def test_extents_that_make_no_sense_are_not_believed(extents: tuple[Extent, ...]) -> None:
    batches = Batches()
    with batches.store.ledger.change() as transaction:
        row = Row(9 << 32 | 20, stat.S_IFREG, 0, 0, 0, 2 * BLOCK, 1, 1, 1, 1, 1, extents, bytes(4), b"")
        transaction.put(row)
        transaction.name(batches.kv, b"bad", row.id)
    batches.commit("bad")
    found = recover(batches.device)
    assert "overlap or lie beyond its size" in found.state_reason
    assert found.list_directory(batches.kv) == []
    check_space(found)


def test_a_quarantined_object_with_a_name_loses_it() -> None:
    batches = Batches()
    oid = put(batches.store, b"a", content(0, GRANULE))
    batches.store.quarantine(oid, "test")
    with batches.store.ledger.change() as transaction:
        transaction.name(batches.kv, b"again", oid)
    batches.commit("bad")
    found = recover(batches.device)
    assert "has a name" in found.state_reason
    assert found.list_directory(batches.kv) == []
    assert len(found.removals.quarantined()) == 1
    check_space(found)


@pytest.mark.parametrize("seed", range(10))
def test_overlaps_of_many_objects_leave_disjoint_ones(seed: int) -> None:
    """Whatever overlaps: nothing is claimed twice afterwards, and the youngest of all has lost nothing."""
    rng, batches = random.Random(seed), Batches()
    store, start = batches.store, batches.store.superblock.data_start
    size, table = 30 * BLOCK, bytes(4 * -(-30 * BLOCK // GRANULE))
    with store.ledger.change() as transaction:
        for number in range(2, 20):
            extents = tuple(
                Extent(10 * i, start + rng.randrange(100), rng.randrange(1, 11)) for i in range(rng.randrange(1, 4))
            )
            if len({e.block + i for e in extents for i in range(e.count)}) < sum(e.count for e in extents):
                extents = extents[:1]
            oid = 5 << 32 | number + 10
            transaction.put(Row(oid, stat.S_IFREG, 0, 0, 0, size, 1, 1, 1, number + 100, 1, extents, table, b""))
            transaction.name(batches.kv, b"%d" % number, oid)
    batches.commit("rows")
    found = recover(batches.device)
    check_space(found)
    assert (b"19", 5 << 32 | 29) in found.list_directory(batches.kv)
    assert recover(batches.device).state == "ok"


def test_dropping_what_is_gone_already() -> None:
    batches = Batches()
    batches.store.removals.drop_lost([12345])
    with pytest.raises(NoSuchObject):
        batches.store.attributes(12345)


def test_serials_go_on_behind_what_was_staged_before_a_crash() -> None:
    batches = Batches()
    staged = [batches.store.stage(None, namespace=batches.kv, mode=0, uid=0, gid=0).id for _ in range(5)]
    batches.store.commit()
    found = recover(batches.device)
    assert found.mkdir(batches.kv, b"d", 0o755, 0, 0) >> 32 > max(oid >> 32 for oid in staged)
