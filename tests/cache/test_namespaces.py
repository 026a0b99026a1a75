"""Options and usage of namespaces in a store."""

from __future__ import annotations

import threading

import pytest

from hcfs.errors import UsageError
from hcfs.options.namespace_options import NamespaceOptions
from hcfs.store import BLOCK, ROOT_ID
from hcfs.store.errors import NoSuchObject

from .conftest import Rig


def test_options_are_in_force_at_once_and_after_a_remount(rig: Rig) -> None:
    kv = rig.namespace()
    options = rig.cache.namespaces.options
    assert options(kv) == NamespaceOptions()
    rig.cache.namespaces.set_option(kv, "verify", "open")
    rig.cache.namespaces.set_option(kv, "staging_patterns", "*.tmp,*.incomplete")
    expected = NamespaceOptions(("*.tmp", "*.incomplete"), "open")
    assert options(kv) == expected
    assert options(rig.namespace("other")) == NamespaceOptions()
    rig.remount()
    assert rig.cache.namespaces.options(kv) == expected
    rig.cache.namespaces.set_option(kv, "verify", "read")
    rig.cache.namespaces.set_option(kv, "staging_patterns", None)
    rig.cache.namespaces.set_option(kv, "quota", "none")
    assert rig.cache.namespaces.options(kv) == NamespaceOptions()
    assert rig.store.list_xattrs(kv) == []


def test_refused_options_leave_what_was(rig: Rig) -> None:
    kv = rig.namespace()
    rig.cache.namespaces.set_option(kv, "verify", "open")
    for option, value in (("quota", "much"), ("verify", "never"), ("colour", "blue"), ("colour", None)):
        with pytest.raises(UsageError):
            rig.cache.namespaces.set_option(kv, option, value)
    assert rig.store.list_xattrs(kv) == [b"hcfs.verify"]
    assert rig.cache.namespaces.options(kv).verify == "open"


def test_options_belong_to_namespaces_only(rig: Rig) -> None:
    inner = rig.store.mkdir(rig.namespace(), b"inner", 0o755, 0, 0)
    for oid in (inner, ROOT_ID, rig.put("file"), 1 << 50):
        with pytest.raises(UsageError, match="this isn't a namespace; name a directory at the mount's root"):
            rig.cache.namespaces.set_option(oid, "verify", "open")
    with pytest.raises(NoSuchObject):
        rig.cache.namespaces.options(1 << 50)


def test_a_namespace_that_needs_a_later_version_is_not_mounted(rig: Rig) -> None:
    rig.store.set_xattr(rig.namespace("weights"), b"hcfs.verify", b"twice")
    with pytest.raises(UsageError) as caught:
        rig.remount()
    assert str(caught.value) == (
        "namespace 'weights' needs a later version of hcfs: it has an option that this one doesn't support "
        "(verify=twice can't be set: there is no such value; give read or open)"
    )
    rig.store.remove_xattr(rig.namespace("weights"), b"hcfs.verify")


@pytest.mark.parametrize(
    ("option", "value"),
    [("origin", b"tape://reel"), ("origin", b"s3://[x/y"), ("write_policy", b"by-pigeon"), ("origin_check", b"sha3")],
)
def test_an_origin_of_a_later_version_keeps_nothing_else_from_being_mounted(
    rig: Rig, option: str, value: bytes
) -> None:
    """Nothing works in that namespace without its origin, so nothing that was promised of it is broken."""
    weights, kv = rig.namespace("weights"), rig.namespace("kv")
    rig.store.set_xattr(weights, b"hcfs.origin", b"s3://bucket/x")
    rig.store.set_xattr(weights, b"hcfs." + option.encode(), value)
    rig.remount()
    found = rig.cache.namespaces.options(weights)
    assert found.origin is not None
    assert found.origin_problem is not None
    assert value.decode() in found.origin_problem
    assert not found.writes
    assert rig.cache.namespaces.options(kv) == NamespaceOptions()


def test_a_reader_of_old_options_does_not_bring_them_back(rig: Rig) -> None:
    """One thread read the attributes before a change and comes to keep them after it."""
    kv = rig.namespace()
    get_xattr, read = rig.store.get_xattr, threading.Event()
    changed = threading.Event()

    def slow(oid: int, name: bytes) -> bytes | None:
        value = get_xattr(oid, name)
        if threading.current_thread() is reader:
            read.set()
            assert changed.wait(10)
        return value

    rig.cache.namespaces.set_option(kv, "verify", "open")
    rig.store.get_xattr = slow  # type: ignore[method-assign]
    reader = threading.Thread(target=lambda: rig.cache.namespaces.options(kv))
    reader.start()
    assert read.wait(10)
    rig.cache.namespaces.set_option(kv, "verify", "read")
    changed.set()
    reader.join(10)
    assert rig.cache.namespaces.options(kv).verify == "read"


def test_names_are_the_directories_at_the_root(rig: Rig) -> None:
    made = {b"kv": rig.namespace("kv"), b"\xff": rig.store.mkdir(ROOT_ID, b"\xff", 0o755, 0, 0)}
    rig.store.symlink(made[b"kv"], b"link", b"x", 0, 0)
    assert rig.cache.namespaces.names() == made
    for namespace in made.values():
        rig.cache.namespaces.options(namespace)
    rig.store.rmdir(ROOT_ID, b"\xff")
    assert rig.cache.namespaces.names() == {b"kv": made[b"kv"]}
    assert list(rig.cache.namespaces._options) == [made[b"kv"]]


def test_usage_follows_what_happens_to_names(rig: Rig) -> None:
    kv = rig.namespace()
    usage = rig.cache.namespaces.usage
    chunk = "m@0x01000100@0@00ff00ff@{}.data".format
    rig.put(chunk("a"), 3)
    oid = rig.put(chunk("b"), 5)
    assert usage(kv).salts == {"a": 3 * BLOCK, "b": 5 * BLOCK}
    rig.put(chunk("a"), 4)
    assert (usage(kv).objects, usage(kv).used_bytes) == (2, 9 * BLOCK)
    rig.store.rename(kv, chunk("b").encode(), kv, chunk("c").encode())
    assert usage(kv).salts == {"a": 4 * BLOCK, "c": 5 * BLOCK}
    directory = rig.store.mkdir(kv, b"deep", 0o755, 0, 0)
    rig.store.link(oid, directory, b"second")
    rig.store.unlink(kv, chunk("c").encode())
    assert usage(kv).salts == {"a": 4 * BLOCK}
    assert (usage(kv).objects, usage(kv).used_bytes) == (2, 9 * BLOCK)
    rig.store.quarantine(oid, "for the test")
    assert (usage(kv).objects, usage(kv).used_bytes) == (1, 4 * BLOCK)
    lock = rig.store.create_empty(kv, b"x.lock", 0o644, 0, 0)
    staged = rig.store.stage_in_place(lock)
    staged.write(0, b"pid 7")
    staged.seal()
    rig.store.publish_in_place(staged)
    assert (usage(kv).objects, usage(kv).used_bytes) == (2, 5 * BLOCK)
    rig.store.unlink(kv, b"x.lock")
    rig.store.unlink(kv, chunk("a").encode())
    assert (usage(kv).objects, usage(kv).used_bytes, usage(kv).salts) == (0, 0, {})
