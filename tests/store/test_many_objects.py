"""What may not grow with the number of objects, counted: a million of them are measured by `tools/lab scale`."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from store.rig import again, check_space, namespace, new_store, put

from hcfs.cache import Cache
from hcfs.store import Store
from hcfs.store import ledger as ledger_module
from hcfs.store import object_metadata as object_metadata_module
from hcfs.store.entries import MANY, PARTS
from hcfs.store.ledger import Ledger
from hcfs.store.page import PAGE_ROWS, PageDraft
from hcfs.store.table import Table
from hcfs.store.transactions import MetadataIndex
from lab.harness.many import fill, format_image, names, open_store

FEW, OBJECTS = 1000, 20_000
assert OBJECTS > MANY


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    image = format_image(tmp_path_factory.mktemp("many") / "image", OBJECTS)
    fill(image, OBJECTS)
    return image


@pytest.fixture
def store(image: Path) -> Iterator[Store]:
    store = open_store(image, read_only=True)
    yield store
    store.close()


def cache_of(store: Store) -> Cache:
    return Cache(store, entry_timeout_s=1.0, on_evicted=lambda _: None)


def test_bytes_an_object(image: Path) -> None:
    """At most 600 with the interpreter's share and the heap's losses, which this doesn't see; names are 119 bytes."""
    tracemalloc.start()
    try:
        store = open_store(image, read_only=True)
        before = tracemalloc.get_traced_memory()[0]
        cache = cache_of(store)
        with_cache, _ = tracemalloc.get_traced_memory()
        assert with_cache / OBJECTS < 500
        assert (with_cache - before) / OBJECTS < 110
        assert store.ledger.index.table.tables == {}, "checksums are on the medium"
        assert cache.statistics().evictions == 0
        store.close()
    finally:
        tracemalloc.stop()


def test_nothing_an_object_is_for_the_garbage_collector(tmp_path: Path, image: Path) -> None:
    """It would stop everybody for 0.8 s at a million."""
    few = format_image(tmp_path / "few", FEW)
    fill(few, FEW)
    tracked = []
    for each in (few, image):
        store = open_store(each, read_only=True)
        cache = cache_of(store)
        gc.collect()
        tracked.append(len(gc.get_objects()))
        store.close()
        del store, cache
    assert tracked[1] - tracked[0] < 200


def test_nothing_a_new_object_is_for_the_garbage_collector() -> None:
    store = new_store(size=64 << 20, max_objects=4000)
    namespace(store)
    gc.collect()
    before = len(gc.get_objects())
    for number in range(500):
        put(store, b"%d" % number, b"x")
    store.commit()
    gc.collect()
    assert len(gc.get_objects()) - before < 100


def test_what_status_asks_walks_over_no_objects(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = cache_of(store)

    def walk(*_: object) -> Iterator[int]:
        raise AssertionError("walks over all objects")

    for walker in ("slots", "quarantined_slots", "__len__"):
        monkeypatch.setattr(Table, walker, walk)
    assert store.usage().files == OBJECTS
    assert store.removals.quarantined() == []
    assert cache.statistics().evictable_bytes == OBJECTS * 4096
    (kv,) = cache.namespaces.names().values()
    assert cache.namespaces.usage(kv).objects == OBJECTS


def test_a_checkpoint_lets_others_in_between_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than a page's rows under one hold of the lock, and no lock while a page is written."""
    store = new_store(size=64 << 20, max_objects=4000)
    for number in range(1500):
        put(store, b"%d" % number, b"x")
    store.commit()
    steps: list[int] = []
    original = PageDraft.finish

    def finish(draft: PageDraft, *args: object) -> object:
        assert not store.ledger.lock._is_owned()  # type: ignore[attr-defined]
        assert not store.ledger.commit_lock.locked()
        steps.append(draft.next_slot - (sum(steps) + 1))
        return original(draft, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(PageDraft, "finish", finish)
    store.checkpoint()
    assert len(steps) == -(-store.usage().objects // PAGE_ROWS)
    assert max(steps) <= PAGE_ROWS


def test_accesses_become_durable_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking everything up and committing takes the lock for a record's worth at a time."""
    store = new_store()
    oids = [put(store, b"%d" % number, b"x") for number in range(50)]
    store.commit()
    monkeypatch.setattr(ledger_module, "TOUCHES_A_RECORD", 10)
    for oid in oids:
        store.touch(oid, 1 << 62)
    put(store, b"new", b"x")
    queued: list[int] = []
    monkeypatch.setattr(
        store.ledger, "enqueue", lambda payload: (queued.append(len(payload)), Ledger.enqueue(store.ledger, payload))
    )
    store.commit()
    assert len(queued) == 5
    found = again(store)
    assert all(found.attributes(oid).last_access_ns == 1 << 62 for oid in oids)


def test_accesses_that_no_commit_takes_along_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store()
    oids = [put(store, b"%d" % number, b"x") for number in range(50)]
    store.commit()
    monkeypatch.setattr(object_metadata_module, "TOUCHES_MOST", 20)
    for oid in oids:
        store.touch(oid)
        assert len(store.ledger.touched) < 20
    assert store.durability.commit_pending()
    store.commit()
    assert not store.durability.commit_pending()


# --- directories ---------------------------------------------------------------------------------------------------


def test_a_large_directory_is_listed_in_small_pieces(store: Store) -> None:
    listing = store.listing(namespace(store))
    pieces = list(iter(listing.more, []))
    found = list(itertools.chain.from_iterable(pieces))
    assert sorted(found) == sorted(itertools.islice(names(), OBJECTS))
    assert max(map(len, pieces)) < 4 * OBJECTS / PARTS
    assert listing.more() == []


def test_a_large_directory_keeps_its_names_through_everything(tmp_path: Path) -> None:
    """Holes in the table, names that come and go while the directory is listed, and the next mount."""
    image = format_image(tmp_path / "image", OBJECTS)
    fill(image, OBJECTS)
    store = open_store(image)
    kv = namespace(store)
    expected = set(itertools.islice(names(), OBJECTS))
    for name in sorted(expected)[::7]:
        store.unlink(kv, name)
        expected.discard(name)
    store.mkdir(kv, b"directory", 0o755, 0, 0)
    expected.add(b"directory")
    store.checkpoint()
    listing, seen = store.listing(kv), []
    changing = sorted(expected - {b"directory"})[::11]
    for number, piece in enumerate(iter(listing.more, [])):
        seen += piece
        if number < len(changing):
            store.rename(kv, changing[number], kv, b"renamed-%d" % number)
    stays = expected - set(changing)
    assert len(seen) == len(set(seen))
    assert stays <= set(seen)
    check_space(store)
    store.close()
    found = open_store(image)
    assert found.state == "ok"
    assert set(iter_all(found, kv)) == {name for name, _ in store.list_directory(kv)}
    assert stays <= set(iter_all(found, kv))
    for name in list(iter_all(found, kv)):
        if name != b"directory":
            found.unlink(kv, name)
    found.rmdir(kv, b"directory")
    assert found.names.entry_count(kv) == 0
    assert found.listing(kv).more() == []
    assert found.usage().used == 0
    found.close()


def iter_all(store: Store, directory: int) -> Iterator[bytes]:
    return itertools.chain.from_iterable(iter(store.listing(directory).more, []))


def test_a_directory_that_becomes_large_or_goes_while_it_is_listed() -> None:
    index = MetadataIndex(1 << 16)
    tree = index.tree
    index.table.grow(MANY + 10)
    for number in range(MANY):
        tree.add(1, b"%d" % number, number + 2)
    store = new_store()
    store.ledger.index.tree.children[1] = tree.children[1]
    listing = store.listing(1)
    first = listing.more()
    tree.add(1, b"one more", MANY + 2)
    assert not isinstance(tree.children[1], dict)
    assert len(first) == MANY
    assert listing.more() == []
