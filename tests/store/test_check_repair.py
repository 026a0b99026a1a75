"""fsck's two halves: what is wrong is said and not touched; what can be mended without a guess is, once."""

from __future__ import annotations

import stat
from collections.abc import Callable

import pytest
from store.devices import Fault, Watched
from store.rig import GRANULE, check_space, content, named, namespace, new_device, put, recover, stage, tree_of

from hcfs.device import MemoryDevice
from hcfs.store import BLOCK, ROOT_ID, Extent, Store
from hcfs.store.check import check
from hcfs.store.errors import CorruptMetadata
from hcfs.store.repair import repair
from hcfs.store.superblock import read_superblock
from hcfs.store.table import Row
from hcfs.store.transactions import Transaction


class Scene:
    def __init__(self) -> None:
        self.device = new_device()
        self.store: Store = recover(self.device)
        kv = namespace(self.store)
        self.good, self.bad = (put(self.store, name, content(name, 3 * GRANULE + 5)) for name in (b"good", b"bad"))
        self.store.symlink(kv, b"link", b"good", 0, 0)
        self.hidden = put(self.store, b"hidden", content(b"hidden", GRANULE))
        self.store.quarantine(self.hidden, "test")
        self.store.commit()

    def spoil(self) -> None:
        (extent,) = self.store.content.extents_of(self.bad)
        self.device.contents[extent.block * BLOCK + GRANULE + 1] ^= 1


@pytest.fixture
def scene() -> Scene:
    return Scene()


def assert_repaired(device: MemoryDevice, *kinds: str, data: bool = True) -> None:
    """Detected, repaired, and clean at a second pass, which finds nothing to do."""
    before = bytes(device.contents)
    assert not check(device, data=data).clean
    assert device.contents == before, "a check writes nothing"
    assert [done.kind for done in repair(device, data=data)] == list(kinds)
    report = check(device, data=data)
    assert report.problems == []
    before = bytes(device.contents)
    assert repair(device, data=data) == []
    assert device.contents == before


def test_a_sound_store_is_counted(scene: Scene) -> None:
    progress: list[tuple[int, int]] = []
    report = check(scene.device, data=True, progress=lambda done, total: progress.append((done, total)))
    assert report.clean
    assert (report.files, report.directories, report.symlinks, report.quarantined) == (2, 2, 1, 1)
    assert (report.granules_checked, report.granules_bad, report.data_checked) == (8, 0, True)
    total = 2 * (3 * GRANULE + 5)
    assert progress[-1] == (total, total)
    usage = scene.store.usage()
    assert (report.used_bytes, report.quarantined_bytes, report.free_bytes, report.capacity_bytes) == (
        *(usage.used, usage.quarantined, usage.free, usage.capacity),
    )
    assert not check(scene.device).data_checked
    assert repair(scene.device, data=True) == []


def test_damaged_data(scene: Scene) -> None:
    scene.spoil()
    assert check(scene.device).clean
    report = check(scene.device, data=True)
    (problem,) = report.problems
    assert (problem.kind, problem.where, report.granules_bad) == ("checksum", "/kv/bad", 1)
    assert f"bytes {GRANULE} to {2 * GRANULE - 1} don't match" in problem.detail
    progress: list[tuple[int, int]] = []
    (done,) = repair(scene.device, data=True, progress=lambda *where: progress.append(where))
    assert (done.kind, done.where) == ("object", "/kv/bad")
    assert progress[-1][0] == progress[-1][1] == 2 * (3 * GRANULE + 5)
    store = recover(scene.device)
    assert [q.path for q in store.removals.quarantined()] in ([b"kv/hidden", b"kv/bad"], [b"kv/bad", b"kv/hidden"])
    assert named(store, b"good") == content(b"good", 3 * GRANULE + 5)
    assert check(scene.device, data=True).clean


@pytest.mark.parametrize("at", [0, -BLOCK])
def test_a_damaged_superblock(scene: Scene, at: int) -> None:
    superblock = read_superblock(scene.device)
    scene.device.contents[at + 77] ^= 1
    assert_repaired(scene.device, "superblock")
    assert read_superblock(scene.device) == superblock
    assert scene.device.contents[:BLOCK] == scene.device.contents[-BLOCK:]


def test_an_older_superblock(scene: Scene) -> None:
    """A crash or a lost write between the two."""
    newer = read_superblock(scene.device).newer()
    scene.device.contents[:BLOCK] = newer.encode()
    assert_repaired(scene.device, "superblock")
    assert read_superblock(scene.device) == newer


def test_data_that_cannot_be_read(scene: Scene) -> None:
    (extent,) = scene.store.content.extents_of(scene.bad)
    at = extent.block * BLOCK + GRANULE
    failing = Watched(scene.device, Fault("read", at, at + 1))
    assert check(failing).clean
    (problem,) = check(failing, data=True).problems
    assert (problem.kind, problem.where) == ("device", "/kv/bad")
    (done,) = repair(failing, data=True)
    assert (done.kind, done.where) == ("object", "/kv/bad")
    assert check(failing, data=True).clean
    assert repair(failing, data=True) == []


def names_of_nothing(scene: Scene, transaction: Transaction) -> None:
    transaction.unname(namespace(scene.store), b"good")


def an_entry_in_a_file(scene: Scene, transaction: Transaction) -> None:
    transaction.name(scene.good, b"inside", scene.bad)


def directories_in_each_other(scene: Scene, transaction: Transaction) -> None:
    one, two = (scene.store.mkdir(namespace(scene.store), name, 0o755, 0, 0) for name in (b"one", b"two"))
    transaction.name(one, b"two", two)
    transaction.name(two, b"one", one)


def a_name_of_a_quarantined_object(scene: Scene, transaction: Transaction) -> None:
    transaction.name(namespace(scene.store), b"back", scene.hidden)


def a_root_with_flags(scene: Scene, transaction: Transaction) -> None:
    transaction.attributes(ROOT_ID, stat.S_IFDIR | 0o755, 0, 0, 1, 1, 1, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        names_of_nothing,
        an_entry_in_a_file,
        directories_in_each_other,
        a_name_of_a_quarantined_object,
        a_root_with_flags,
    ],
    ids=lambda wrong: wrong.__name__,
)
def test_records_that_cannot_be(scene: Scene, wrong: Callable[[Scene, Transaction], None]) -> None:
    transaction = Transaction(scene.store.ledger.index, 5)
    wrong(scene, transaction)
    scene.store.commit()
    with scene.store.atomically():
        scene.store.ledger.enqueue(bytes(transaction.payload))
    scene.store.commit()
    before = bytes(scene.device.contents)
    assert not check(scene.device, data=True).clean
    assert scene.device.contents == before
    done = repair(scene.device, data=True)
    assert {each.kind for each in done} == {"metadata"}
    assert check(scene.device, data=True).problems == []
    assert repair(scene.device, data=True) == []
    found = recover(scene.device)
    assert found.state == "ok"
    check_space(found)


def test_a_damaged_log(scene: Scene) -> None:
    store = scene.store
    assert store.ledger.writer is not None
    at = store.superblock.regions[store.ledger.region] * BLOCK + store.ledger.writer.at
    store.unlink(namespace(store), b"good")
    store.commit()
    put(store, b"later", b"x")
    store.commit()
    scene.device.contents[at + 30] ^= 1
    assert_repaired(scene.device, "metadata")
    store = recover(scene.device)
    assert store.state == "ok"
    assert named(store, b"later") == b"x"
    check_space(store)


def header_block(store: Store, which: str, place: str) -> int:
    """Block of the device: the header of the current or the older region, or its copy."""
    sb = store.superblock
    start = sb.regions[store.ledger.region if which == "current" else 1 - store.ledger.region]
    return start if place == "header" else start + sb.header_copy


@pytest.mark.parametrize("place", ["header", "copy"])
@pytest.mark.parametrize("which", ["current", "older"])
def test_a_damaged_header(scene: Scene, which: str, place: str) -> None:
    store = scene.store
    store.checkpoint()
    put(store, b"later", b"x")
    store.commit()
    whole = bytes(scene.device.contents)
    scene.device.contents[header_block(store, which, place) * BLOCK + 40] ^= 1
    (problem,) = check(scene.device).problems
    assert (problem.kind, "header" in problem.detail) == ("region", True)
    assert_repaired(scene.device, "metadata")
    assert scene.device.contents == whole


def test_a_damaged_checkpoint(scene: Scene) -> None:
    store = scene.store
    store.checkpoint()
    scene.device.contents[header_block(store, "current", "header") * BLOCK + BLOCK + 50] ^= 1
    assert_repaired(scene.device, "metadata")
    found = recover(scene.device)
    assert (found.state, tree_of(found)) == ("ok", tree_of(store))


def test_a_region_without_a_header(scene: Scene) -> None:
    """What the region before it says is kept, and what came since the last checkpoint is lost."""
    store = scene.store
    store.checkpoint()
    before = tree_of(store)
    store.checkpoint()
    put(store, b"later", b"x")
    store.commit()
    for place in ("header", "copy"):
        scene.device.contents[header_block(store, "current", place) * BLOCK + 40] ^= 1
    assert_repaired(scene.device, "metadata")
    found = recover(scene.device)
    assert (found.state, tree_of(found)) == ("ok", before)


def test_nothing_usable(scene: Scene) -> None:
    for which in ("current", "older"):
        for place in ("header", "copy"):
            scene.device.contents[header_block(scene.store, which, place) * BLOCK] ^= 1
    (problem,) = check(scene.device, data=True).problems
    assert problem.kind == "region"
    before = bytes(scene.device.contents)
    with pytest.raises(CorruptMetadata):
        repair(scene.device)
    assert scene.device.contents == before


def test_rows_that_cannot_be(scene: Scene) -> None:
    store, kv = scene.store, namespace(scene.store)
    start = store.superblock.data_start
    (taken,) = store.content.extents_of(scene.good)
    for number, extents in enumerate(((Extent(0, taken.block, 1),), (Extent(0, start - 1, 1),), ())):
        with store.ledger.change() as transaction:
            oid = 99 << 32 | 40 + number
            transaction.put(Row(oid, stat.S_IFREG | 0o644, 0, 0, 0, 9, 1, 1, 1, 1, 1, extents, bytes(4), b""))
            if extents:
                transaction.name(kv, b"impossible %d" % number, oid)
    store.commit()
    kinds = {problem.kind for problem in check(scene.device).problems}
    assert kinds >= {"allocation", "extent", "name"}
    repair(scene.device)
    assert check(scene.device, data=True).clean
    found = recover(scene.device)
    assert found.state == "ok"
    assert named(found, b"good") == content(b"good", 3 * GRANULE + 5)
    assert sorted(name for name, _ in found.list_directory(kv)) == [b"bad", b"good", b"link"]
    check_space(found)


def test_a_staged_object_is_no_problem(scene: Scene) -> None:
    staged = stage(scene.store)
    staged.write(0, content(1, GRANULE))
    scene.store.commit()
    assert check(scene.device, data=True).clean
    assert scene.store.lookup(ROOT_ID, b"kv") is not None
