"""Quotas as the calls of clients meet them: which of them fails, and what names of other salts are to each other."""

from __future__ import annotations

import os

from mountcore.kernel import Process, Rig, errno_of

KIB = 1 << 10


def chunk(number: int, salt: str) -> bytes:
    return f"m@0x01000100@0@{number:08x}@{salt}.data".encode()


def set_option(rig: Rig, me: Process, option: str, value: str) -> None:
    rig.fs.setxattr(rig.kv, b"user.hcfs." + option.encode(), value.encode(), me.caller)


def counted(rig: Rig) -> tuple[int, int]:
    """KiB used and staged of the namespace."""
    usage = rig.cache.namespaces.usage(rig.kv)
    return usage.used_bytes // KIB, usage.staged_bytes // KIB


def test_the_option_is_an_attribute_of_the_directory(rig: Rig, me: Process) -> None:
    set_option(rig, me, "quota", "1M")
    assert rig.fs.getxattr(rig.kv, b"user.hcfs.quota") == b"1048576"
    set_option(rig, me, "quota", "none")
    assert rig.fs.getxattr(rig.kv, b"user.hcfs.quota") == b"none"
    set_option(rig, me, "quota", "0")
    rig.fs.removexattr(rig.kv, b"user.hcfs.quota", me.caller)
    assert rig.fs.getxattr(rig.kv, b"user.hcfs.quota") == b"none"


def test_a_write_that_does_not_fit_fails_and_so_do_close_and_rename(rig: Rig, me: Process) -> None:
    set_option(rig, me, "quota", "256K")
    handle = me.open(b"x.tmp", os.O_WRONLY | os.O_CREAT)
    assert errno_of(me.write, handle, bytes(512 * KIB)) == "EDQUOT"
    assert errno_of(me.close, handle) == "EDQUOT"
    assert errno_of(me.rename, b"x.tmp", b"x") == "EDQUOT"
    assert not me.exists(b"x")
    assert counted(rig) == (0, 0)


def test_what_is_kept_in_memory_until_then_fails_at_close(rig: Rig, me: Process) -> None:
    set_option(rig, me, "quota", "4K")
    handle = me.open(b"x.tmp", os.O_WRONLY | os.O_CREAT)
    me.write(handle, bytes(5000))
    assert errno_of(me.close, handle) == "EDQUOT"
    assert errno_of(me.rename, b"x.tmp", b"x") == "EDQUOT"
    assert counted(rig) == (0, 0)
    me.put(b"y", bytes(4096))
    assert counted(rig) == (4, 0)


def test_lock_files_count_too(rig: Rig, me: Process) -> None:
    set_option(rig, me, "quota", "8K")
    me.put(b"x.lock", bytes(5000))
    assert counted(rig) == (8, 0)
    handle = me.open(b"y.lock", os.O_WRONLY | os.O_CREAT)
    me.write(handle, bytes(100))
    me.close(handle)
    assert counted(rig) == (4, 0), "the older one went for it"
    handle = me.open(b"z.lock", os.O_WRONLY | os.O_CREAT)
    me.write(handle, bytes(9000))
    assert errno_of(me.close, handle) == "EDQUOT"
    assert not me.stat(b"z.lock").size


def test_what_is_unlinked_while_open_counts_as_long_as_it_is_staged(rig: Rig, me: Process) -> None:
    set_option(rig, me, "quota", "256K")
    handle = me.open(b"x", os.O_WRONLY | os.O_CREAT)
    me.write(handle, bytes(128 * KIB))
    me.unlink(b"x")
    assert counted(rig) == (0, 128)
    me.close(handle)
    assert counted(rig) == (0, 0)


def test_a_rename_to_a_name_of_another_salt_makes_room_there(rig: Rig, me: Process) -> None:
    set_option(rig, me, "quota", "256K")
    set_option(rig, me, "salt_quota", "128K")
    me.put(chunk(1, "a"), bytes(100 * KIB))
    me.put(b"x.tmp", bytes(100 * KIB))
    me.rename(b"x.tmp", chunk(2, "a"))
    assert me.load(chunk(2, "a")) == bytes(100 * KIB)
    assert not me.exists(chunk(1, "a"))
    assert (rig.kv, chunk(1, "a")) in rig.notices.names
    me.put(b"y.tmp", bytes(150 * KIB))
    assert errno_of(me.rename, b"y.tmp", chunk(3, "a")) == "EDQUOT"
    me.rename(b"y.tmp", b"y")
    assert counted(rig) == (252, 0)


def test_published_names_of_different_salts_are_as_different_devices(rig: Rig, me: Process) -> None:
    me.put(chunk(1, "a"), b"x")
    me.link(chunk(1, "a"), chunk(1, "b"))
    me.rename(chunk(1, "a"), chunk(1, "c"))
    set_option(rig, me, "salt_quota", "128K")
    assert errno_of(me.link, chunk(1, "b"), chunk(2, "a")) == "EXDEV"
    assert errno_of(me.rename, chunk(1, "b"), chunk(2, "a")) == "EXDEV"
    assert errno_of(me.rename, chunk(1, "b"), b"plain") == "EXDEV"
    me.rename(chunk(1, "b"), chunk(3, "b"))
    handle = me.open(chunk(3, "b"), os.O_WRONLY)
    assert errno_of(me.rename, chunk(3, "b"), chunk(4, "a")) == "EXDEV"
    me.close(handle)
    me.put(b"x.tmp", b"new")
    assert errno_of(me.link, b"x.tmp", chunk(5, "a")) == "EXDEV"
    directory = rig.fs.mkdir(rig.kv, b"d", 0o755, me.caller).ino
    me.rename(b"d", b"e")
    assert rig.store.lookup(rig.kv, b"e") == directory


def test_a_failed_truncation_to_more(rig: Rig, me: Process) -> None:
    """A longer file has holes: nothing is taken, so nothing is refused."""
    set_option(rig, me, "quota", "8K")
    me.put(b"x", b"data")
    me.truncate(b"x", 1 << 20)
    assert me.stat(b"x").size == 1 << 20
    assert counted(rig) == (4, 0)


def test_modifying_needs_room_for_both(rig: Rig, me: Process) -> None:
    set_option(rig, me, "quota", "256K")
    me.put(b"x", bytes(200 * KIB))
    handle = me.open(b"x", os.O_WRONLY)
    me.write(handle, b"changed")
    assert errno_of(me.close, handle) == "EDQUOT"
    assert me.load(b"x") == bytes(200 * KIB)
    assert counted(rig) == (200, 0)
