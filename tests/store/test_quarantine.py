from __future__ import annotations

import pytest
from store.devices import Fault, Watched
from store.rig import GRANULE, again, check_space, content, get, namespace, new_device, new_store, put, recover

from hcfs.device import DeviceError
from hcfs.store import BLOCK, ROOT_ID
from hcfs.store.errors import NoSuchObject, ReadOnlyStore

NAME = b"caf\xe9-\xff"  # not UTF-8


def test_a_quarantined_object_is_a_miss_and_kept() -> None:
    store = new_store()
    kv = namespace(store)
    oid = put(store, NAME, content(0, 3 * GRANULE))
    store.link(oid, kv, b"second")
    store.commit()
    pin = store.pin(oid)
    assert store.quarantine(oid, "granule 1 doesn't match") == [(kv, NAME), (kv, b"second")]
    assert store.quarantine(oid, "again") == []
    assert store.lookup(kv, NAME) is store.lookup(kv, b"second") is None
    assert not store.is_current(oid)
    assert (store.attributes(oid).state, store.attributes(oid).nlink) == ("quarantined", 0)
    usage = store.usage()
    assert (usage.used, usage.quarantined, usage.pinned_used, usage.files) == (0, 3 * GRANULE, 0, 0)
    assert usage.quarantined_objects == 1
    # Handles already open go on reading what verifies.
    assert bytes(store.read(pin, 0, 10)) == content(0, 10 * GRANULE)[:10]
    check_space(store)
    pin.release()
    check_space(store)
    assert list(store.census.files_by_access()) == []


def test_quarantine_outlives_the_mount_and_the_checkpoint() -> None:
    store = new_store()
    kv = namespace(store)
    oid = put(store, NAME, content(0, 3 * GRANULE))
    store.set_xattr(oid, b"user.a", b"1")
    store.quarantine(oid, "granule 1 doesn't match")
    store.commit()
    for _ in range(2):
        store = again(store)
        assert store.state == "ok"
        (found,) = store.removals.quarantined()
        assert (found.id, found.path, found.reason) == (oid, b"kv/" + NAME, "granule 1 doesn't match")
        assert found.blocks == 3 * GRANULE // BLOCK
        assert found.since_ns > 10**18
        assert store.list_directory(kv) == []
        assert get(store, oid) == content(0, 3 * GRANULE)
        check_space(store)
        store.checkpoint()
    put(store, NAME, b"the next one")
    store.commit()
    assert len(again(store).removals.quarantined()) == 1


def test_purging_and_evicting_free_the_space() -> None:
    store = new_store()
    first, second, kept = (put(store, name, content(name, GRANULE)) for name in (b"1", b"2", b"3"))
    for oid in (first, second):
        store.quarantine(oid, "test")
    with pytest.raises(NoSuchObject, match="is not quarantined"):
        store.removals.purge(kept)
    store.removals.purge(first)
    with pytest.raises(NoSuchObject):
        store.removals.purge(first)
    check_space(store)
    pin = store.pin(second)
    assert store.evict(second) is None
    pin.release()
    assert store.evict(second) == []
    assert store.removals.quarantined() == []
    store.commit()
    assert store.usage().quarantined == store.usage().pending == 0
    check_space(store)
    assert again(store).usage().files == 1


def test_a_pinned_object_can_be_purged() -> None:
    store = new_store()
    oid = put(store, b"a", content(0, GRANULE))
    pin = store.pin(oid)
    store.quarantine(oid, "test")
    store.removals.purge(oid)
    store.commit()
    check_space(store)
    assert bytes(store.read(pin, 0, GRANULE)) == content(0, GRANULE)
    pin.release()
    check_space(store)
    assert store.usage().free == store.usage().capacity


def test_only_files_are_quarantined_or_evicted() -> None:
    store = new_store()
    kv = namespace(store)
    link = store.symlink(kv, b"l", b"x", 0, 0)
    for oid in (ROOT_ID, kv, link, 999):
        assert store.quarantine(oid, "test") == []
        assert store.evict(oid) is None
    assert store.lookup(kv, b"l") == link


def test_evicting_takes_all_names() -> None:
    store = new_store()
    kv = namespace(store)
    oid = put(store, b"a", content(0, GRANULE))
    store.link(oid, kv, b"b")
    assert store.evict(oid) == [(kv, b"a"), (kv, b"b")]
    assert store.evict(oid) is None
    store.commit()
    assert again(store).list_directory(kv) == []


def test_a_read_only_store_forgets_the_names_in_memory() -> None:
    """Enough to make it a miss until the next mount, which finds it again."""
    device = new_device()
    store = recover(device)
    oid = put(store, b"a", content(0, GRANULE))
    store.close()
    device = type(device).holding(device.contents)
    store = recover(device, read_only=True)
    kv = namespace(store)
    before = bytes(device.contents)
    assert store.quarantine(oid, "test") == [(kv, b"a")]
    assert store.lookup(kv, b"a") is None
    check_space(store)
    (found,) = store.removals.quarantined()
    assert found.reason == "unknown"
    with pytest.raises(ReadOnlyStore, match="mounted read-only"):
        store.removals.purge(oid)
    store.commit()
    store.close()
    assert device.contents == before


def test_a_store_that_stopped_can_still_make_misses() -> None:
    watched = Watched(new_device())
    store = recover(watched)
    oid = put(store, b"a", content(0, GRANULE))
    watched.hooks.append(Fault("flush"))
    with pytest.raises(DeviceError):
        store.commit()
    assert len(store.quarantine(oid, "test")) == 1
    assert store.lookup(namespace(store), b"a") is None
    check_space(store)
