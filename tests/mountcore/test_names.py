"""Directories, symlinks, mknod, unlink, rename and link of committed objects, and statfs."""

from __future__ import annotations

import os
import stat

from mountcore.kernel import ENTRY_TIMEOUT, Process, Rig, errno_of

from hcfs.filesystem.operations.attribute_changes import Changes
from hcfs.store import NAME_MAX, ROOT_ID

NOREPLACE, EXCHANGE = 1, 2


def test_files_at_the_root_are_refused(me: Process) -> None:
    me.put(b"f", b"1")
    ino = me.lookup(b"f").ino
    assert errno_of(me.fs.create, ROOT_ID, b"x", 0o644, os.O_WRONLY, me.caller) == "EPERM"
    assert errno_of(me.fs.mknod, ROOT_ID, b"x", stat.S_IFREG | 0o644, me.caller) == "EPERM"
    assert errno_of(me.fs.symlink, ROOT_ID, b"x", b"kv", me.caller) == "EPERM"
    assert errno_of(me.fs.link, ino, ROOT_ID, b"x", me.caller) == "EPERM"
    assert errno_of(me.rename, b"f", b"x", 0, ROOT_ID) in ("EPERM", "EXDEV")


def test_modes_and_owners(rig: Rig) -> None:
    him = rig.proc(uid=5, gid=6)
    made = him.fs.mkdir(rig.kv, b"d", 0o2750, him.caller)
    assert made.attributes is not None
    assert (made.attributes.mode, made.attributes.uid, made.attributes.gid) == (stat.S_IFDIR | 0o2750, 5, 6)
    her = rig.proc(uid=8, gid=9)
    her.close(her.open(b"f", os.O_WRONLY | os.O_CREAT, 0o604, parent=made.ino))
    found = her.stat(b"f", made.ino)
    assert (stat.S_IMODE(found.mode), found.uid, found.gid) == (0o604, 8, 6), "the group of a setgid directory"
    inner = her.fs.mkdir(made.ino, b"inner", 0o755, her.caller).attributes
    assert inner is not None
    assert (inner.gid, inner.mode & stat.S_ISGID) == (6, stat.S_ISGID)


def test_mknod(rig: Rig, me: Process, other: Process) -> None:
    me.fs.mknod(rig.kv, b"f", stat.S_IFREG | 0o600, me.caller)
    assert other.load(b"f") == b""
    for kind in (stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK):
        assert errno_of(me.fs.mknod, rig.kv, b"x", kind | 0o600, me.caller) == "EPERM"
    assert errno_of(me.fs.mknod, rig.kv, b"f", stat.S_IFREG, me.caller) == "EEXIST"


def test_symlinks(rig: Rig, me: Process) -> None:
    made = me.fs.symlink(rig.kv, b"s", b"some/where", me.caller)
    assert me.fs.readlink(made.ino) == b"some/where"
    assert made.attributes is not None
    assert made.attributes.size == 10
    me.unlink(b"s")
    assert not me.exists(b"s")


def test_long_names(rig: Rig, me: Process) -> None:
    longest = b"n" * NAME_MAX
    me.put(longest, b"1")
    assert me.load(longest) == b"1"
    for call in (
        lambda: me.lookup(longest + b"n"),
        lambda: me.fs.create(rig.kv, longest + b"n", 0o644, 0, me.caller),
        lambda: me.rename(longest, longest + b"n"),
        lambda: me.fs.mkdir(rig.kv, longest + b"n", 0o755, me.caller),
        lambda: me.unlink(longest + b"n"),
    ):
        assert errno_of(call) == "ENAMETOOLONG"


def test_renames(rig: Rig, me: Process, other: Process) -> None:
    me.put(b"a", b"A")
    replaced = me.put(b"b", b"B")
    reader = other.open(b"b")
    assert errno_of(me.rename, b"a", b"b", NOREPLACE) == "EEXIST"
    assert errno_of(me.rename, b"a", b"b", EXCHANGE) == "EINVAL"
    assert errno_of(me.rename, b"none", b"b") == "ENOENT"
    me.rename(b"a", b"b")
    assert other.load(b"b") == b"A"
    assert other.read(reader) == b"B"
    assert other.fs.getattr(replaced).attributes.nlink == 0  # type: ignore[union-attr]
    other.close(reader)
    there = me.fs.mkdir(ROOT_ID, b"other", 0o755, me.caller).ino
    assert errno_of(me.rename, b"b", b"b", 0, there) == "EXDEV"
    me.put(b"v.tmp", b"v")
    assert errno_of(me.rename, b"v.tmp", b"v", 0, there) == "EXDEV"
    me.rename(b"v.tmp", b"v", NOREPLACE)
    me.put(b"w.tmp", b"w")
    assert errno_of(me.rename, b"w.tmp", b"v", NOREPLACE) == "EEXIST"
    assert (me.load(b"v"), me.load(b"w.tmp")) == (b"v", b"w")
    assert errno_of(me.rename, b"w.tmp", b"kv", 0, ROOT_ID) in ("EPERM", "EXDEV")


def test_a_version_is_not_renamed_over_a_directory(rig: Rig, me: Process) -> None:
    me.fs.mkdir(rig.kv, b"d", 0o755, me.caller)
    me.put(b"f.tmp", b"1")
    assert errno_of(me.rename, b"f.tmp", b"d") == "EISDIR"


def test_a_directory_is_not_made_where_a_file_is_being_written(rig: Rig, me: Process, other: Process) -> None:
    handle = me.open(b"f", os.O_WRONLY | os.O_CREAT)
    assert errno_of(other.fs.mkdir, rig.kv, b"f", 0o755, other.caller) == "EEXIST"
    me.close(handle)


def test_a_rename_onto_a_name_with_versions_is_told_to_the_kernel(rig: Rig, me: Process, other: Process) -> None:
    me.put(b"y", b"y")
    handle = other.open(b"x", os.O_WRONLY | os.O_CREAT)
    me.rename(b"y", b"x")
    assert rig.notices.names == [(rig.kv, b"x")]
    other.write(handle, b"his")
    other.close(handle)
    assert me.load(b"x") == b"his"


def test_attributes_of_a_directory_are_not_kept_for_long(rig: Rig, me: Process) -> None:
    """Publishing changes its times without the kernel's doing."""
    assert me.fs.getattr(rig.kv).attr_timeout == 1.0
    me.put(b"f", b"1")
    assert me.lookup(b"f").attr_timeout == ENTRY_TIMEOUT


def test_a_listing_from_before_a_rename(rig: Rig, me: Process) -> None:
    for number in range(10):
        me.put(b"%d" % number, b"x")
    handle = me.fs.opendir(rig.kv, me.caller).handle
    seen = list(me.fs.readdir(handle, 0))[:5]
    me.unlink(b"7")
    me.put(b"8", b"replaced")
    names = [entry[0] for entry in seen] + [entry[0] for entry in me.fs.readdir(handle, seen[-1][2])]
    assert sorted(names) == [b".", b"..", *(b"%d" % number for number in range(10) if number != 7)]
    me.fs.release(handle)


def test_a_removed_directory_can_still_be_asked_for(rig: Rig, me: Process) -> None:
    ino = me.fs.mkdir(rig.kv, b"d", 0o755, me.caller).ino
    handle = me.fs.opendir(ino, me.caller).handle
    me.fs.rmdir(rig.kv, b"d")
    assert me.fs.getattr(ino).attributes.nlink == 0  # type: ignore[union-attr]
    me.fs.release(handle)
    assert errno_of(me.fs.getattr, ino) == "ESTALE"


def test_changes_of_attributes(me: Process) -> None:
    ino = me.put(b"f", b"1")
    me.fs.setattr(ino, Changes(mode=0o4711, uid=3, gid=4, atime_ns=5, mtime_ns=6), None, me.caller)
    found = me.stat(b"f")
    assert (stat.S_IMODE(found.mode), found.uid, found.gid, found.atime_ns, found.mtime_ns) == (0o4711, 3, 4, 5, 6)
    assert stat.S_ISREG(found.mode)


def test_statfs(rig: Rig, me: Process) -> None:
    me.put(b"f", bytes(1 << 20))
    space = rig.fs.statfs()
    assert space.blocks * 4096 == rig.store.usage().capacity
    assert space.available == space.free + 256
    assert space.files > 0
    assert space.files_free > 0


def test_a_listing_takes_the_lock_for_many_entries_at_once(rig: Rig, me: Process) -> None:
    """Taken for each, it is had again before whoever waits for it has woken up."""
    for number in range(300):
        rig.store.create_empty(rig.kv, b"%d" % number, 0o644, 0, 0)
    handle = me.fs.opendir(rig.kv, me.caller).handle
    listing, lock, taken = rig.fs.parts.listing, rig.fs.volume.lock, 0

    class Counting:
        def __enter__(self) -> bool:
            nonlocal taken
            taken += 1
            return lock.__enter__()

        def __exit__(self, *error: object) -> None:
            lock.release()

    listing._lock = Counting()  # type: ignore[assignment]
    try:
        assert len(list(me.fs.readdir(handle, 0))) == 302
    finally:
        listing._lock = lock
    assert taken <= 10
