"""rename and link within a namespace: atomic, with the flags kept; across namespaces EXDEV."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.harness.actors import (
    RENAME_EXCHANGE,
    RENAME_NOREPLACE,
    Actor,
    errno_of,
    eventually,
    load,
    pattern,
    put,
    renameat2,
    store,
)
from lab.harness.mounts import Mount

OLD, NEW = pattern("renamed over", 500_000), pattern("renamed", 200_000)


@pytest.fixture
def elsewhere(shared_mount: Mount, kv: Path) -> Path:
    """Another namespace on the same mount."""
    return shared_mount.ns(f"{kv.name}-elsewhere")


def test_over_an_open_object(kv: Path) -> None:
    """The new object has the name at once; a reader of the old one keeps it, by handle and by mapping."""
    put(kv / "x", OLD)
    put(kv / "y", NEW)
    inode = os.stat(kv / "y").st_ino
    with Actor() as reader:
        fd = reader.open(kv / "x", os.O_RDONLY)
        mapping = reader.map_file(fd, len(OLD))
        os.rename(kv / "y", kv / "x")
        assert load(kv / "x") == NEW
        assert os.stat(kv / "x").st_ino == inode
        assert os.listdir(kv) == ["x"]
        assert errno_of(os.stat, kv / "y") == "ENOENT"
        assert reader.pread(fd, 1 << 20, 0) == OLD
        assert reader.map_read(mapping) == OLD
        assert reader.fstat(fd).st_nlink == 0
        assert reader.fstat(fd).st_size == len(OLD)
        assert reader.load(kv / "x") == NEW


def test_is_atomic(kv: Path) -> None:
    """While one object after the other is renamed over a name, others find one of them there, always whole.

    However often it is replaced while they walk to it: the kernel repeats a walk that ends with ESTALE only once.
    """
    contents = [pattern(number, 50_000 + number) for number in range(300)]
    by_size = {len(content): content for content in contents}
    put(kv / "x", contents[0])
    problems: list[str] = []
    done = threading.Event()

    def watch(reader: Actor) -> None:
        while not done.is_set():
            try:
                seen = reader.load(kv / "x")
            except OSError as error:
                problems.append(repr(error))
                return
            if seen != by_size.get(len(seen)):
                problems.append(f"{len(seen)} bytes of no object")

    with Actor() as one, Actor() as two:
        watchers = [threading.Thread(target=watch, args=(reader,)) for reader in (one, two)]
        for watcher in watchers:
            watcher.start()
        for content in contents:
            put(kv / "x", content)
        done.set()
        for watcher in watchers:
            watcher.join()
    assert problems == []
    assert load(kv / "x") == contents[-1]


def test_noreplace(kv: Path) -> None:
    """EEXIST where the target exists, for committed and for staged sources; a rename where it doesn't."""
    put(kv / "x", OLD)
    put(kv / "y", NEW)
    assert errno_of(renameat2, kv / "y", kv / "x", RENAME_NOREPLACE) == "EEXIST"
    assert (load(kv / "x"), load(kv / "y")) == (OLD, NEW)
    renameat2(kv / "y", kv / "z", RENAME_NOREPLACE)
    assert load(kv / "z") == NEW
    with Actor() as writer:
        writer.store(kv / "k.tmp", b"staged")
        assert errno_of(writer.renameat2, kv / "k.tmp", kv / "x", RENAME_NOREPLACE) == "EEXIST"
        assert load(kv / "x") == OLD
        writer.renameat2(kv / "k.tmp", kv / "k", RENAME_NOREPLACE)
    assert load(kv / "k") == b"staged"
    assert sorted(os.listdir(kv)) == ["k", "x", "z"]


@pytest.mark.parametrize("flags", [RENAME_EXCHANGE, RENAME_EXCHANGE | RENAME_NOREPLACE, 4])
def test_other_flags_are_refused(kv: Path, flags: int) -> None:
    """EINVAL, and no file is lost."""
    put(kv / "x", OLD)
    put(kv / "y", NEW)
    assert errno_of(renameat2, kv / "y", kv / "x", flags) == "EINVAL"
    assert (load(kv / "x"), load(kv / "y")) == (OLD, NEW)


def test_across_namespaces(kv: Path, elsewhere: Path) -> None:
    """EXDEV for objects, staged versions, directories and links; mv then copies."""
    put(kv / "x", OLD)
    (kv / "d").mkdir()
    put(kv / "d" / "in", NEW)
    assert errno_of(os.rename, kv / "x", elsewhere / "x") == "EXDEV"
    assert errno_of(os.link, kv / "x", elsewhere / "x") == "EXDEV"
    assert errno_of(os.rename, kv / "d", elsewhere / "d") == "EXDEV"
    with Actor() as writer:
        writer.store(kv / "k.tmp", NEW)
        assert errno_of(writer.rename, kv / "k.tmp", elsewhere / "k") == "EXDEV"
        assert errno_of(writer.link, kv / "k.tmp", elsewhere / "k") == "EXDEV"
        writer.rename(kv / "k.tmp", kv / "k")
    assert os.listdir(elsewhere) == []
    assert sorted(os.listdir(kv)) == ["d", "k", "x"]
    subprocess.run(["mv", kv / "x", kv / "d", elsewhere], check=True)
    assert os.listdir(kv) == ["k"]
    assert load(elsewhere / "x") == OLD
    assert load(elsewhere / "d" / "in") == NEW


def test_a_committed_object_stays_committed(kv: Path) -> None:
    """Renamed to a staging name it is listed there, for everybody, and can be renamed back."""
    put(kv / "x", OLD)
    inode = os.stat(kv / "x").st_ino
    os.rename(kv / "x", kv / "x.tmp")
    with Actor() as other:
        assert other.listdir(kv) == ["x.tmp"]
        assert other.load(kv / "x.tmp") == OLD
        other.rename(kv / "x.tmp", kv / "x")
    assert os.stat(kv / "x").st_ino == inode
    assert os.listdir(kv) == ["x"]


def test_directories(kv: Path) -> None:
    """With what is in them, onto an empty directory, and the refusals of POSIX."""
    (kv / "a" / "b").mkdir(parents=True)
    put(kv / "a" / "b" / "x", OLD)
    put(kv / "file", NEW)
    (kv / "empty").mkdir()
    (kv / "full").mkdir()
    put(kv / "full" / "x", NEW)
    assert errno_of(os.rename, kv / "a", kv / "full") == "ENOTEMPTY"
    assert errno_of(os.rename, kv / "a", kv / "file") == "ENOTDIR"
    assert errno_of(os.rename, kv / "file", kv / "a") == "EISDIR"
    assert errno_of(os.rename, kv / "a", kv / "a" / "b" / "c") == "EINVAL"
    assert errno_of(os.rename, kv / "absent", kv / "new") == "ENOENT"
    assert errno_of(os.rename, kv / "file", kv / "absent" / "new") == "ENOENT"
    inode = os.stat(kv / "a").st_ino
    os.rename(kv / "a", kv / "empty")
    assert os.stat(kv / "empty").st_ino == inode
    assert load(kv / "empty" / "b" / "x") == OLD
    assert errno_of(os.stat, kv / "a") == "ENOENT"
    os.rename(kv / "empty" / "b", kv / "full" / "b")
    assert load(kv / "full" / "b" / "x") == OLD
    assert os.listdir(kv / "empty") == []
    assert sorted(os.listdir(kv / "full")) == ["b", "x"]
    assert os.stat(kv / "full" / "b" / "..").st_ino == os.stat(kv / "full").st_ino


def test_a_directory_with_a_version_being_written(kv: Path) -> None:
    """The version goes along and is published where the directory is then."""
    (kv / "d").mkdir()
    with Actor() as writer:
        fd = writer.open(kv / "d" / "x", os.O_WRONLY | os.O_CREAT)
        writer.write(fd, b"before ")
        os.rename(kv / "d", kv / "e")
        writer.write(fd, b"after")
        writer.close(fd)
        eventually(lambda: errno_of(os.stat, kv / "e" / "x") == "ok", "published in the renamed directory")
    assert load(kv / "e" / "x") == b"before after"


def test_hard_links(kv: Path) -> None:
    """A second name of one inode; renaming one onto the other does nothing; each name can go by itself."""
    put(kv / "a", OLD)
    (kv / "d").mkdir()
    os.link(kv / "a", kv / "d" / "b")
    first, second = os.stat(kv / "a"), os.stat(kv / "d" / "b")
    assert first.st_ino == second.st_ino
    assert first.st_nlink == second.st_nlink == 2
    os.rename(kv / "a", kv / "d" / "b")
    assert errno_of(os.stat, kv / "a") == errno_of(os.stat, kv / "d" / "b") == "ok"
    assert errno_of(os.link, kv / "a", kv / "d" / "b") == "EEXIST"
    assert errno_of(os.link, kv / "d", kv / "e") == "EPERM"
    os.unlink(kv / "a")
    assert load(kv / "d" / "b") == OLD
    assert os.stat(kv / "d" / "b").st_nlink == 1
    os.unlink(kv / "d" / "b")
    assert errno_of(os.stat, kv / "d" / "b") == "ENOENT"


def test_onto_a_name_that_another_process_has_staged(kv: Path) -> None:
    """The rename wins the name now; the other's close wins it later, with its own inode and bytes."""
    put(kv / "y", NEW)
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_CREAT)
        writer.write(fd, OLD)
        os.rename(kv / "y", kv / "x")
        assert load(kv / "x") == NEW
        # The kernel has moved what it knew of y, timeout included, until it is told to forget it.
        eventually(lambda: writer.load(kv / "x") == OLD, "the writer's own version is its own again")
        writer.close(fd)
        eventually(lambda: load(kv / "x") == OLD, "the later publisher wins")
    assert os.listdir(kv) == ["x"]


def test_the_inode_number_stays_with_the_object(kv: Path) -> None:
    """Through renames, links and a dropped cache; a new object has a new one."""
    put(kv / "x", OLD)
    inode = os.stat(kv / "x").st_ino
    os.rename(kv / "x", kv / "y")
    assert os.stat(kv / "y").st_ino == inode
    with Actor() as other:
        assert other.stat(kv / "y").st_ino == inode
        with os.scandir(kv) as entries:
            assert [entry.inode() for entry in entries] == [inode]
    put(kv / "x", OLD)
    put(kv / "y", OLD)
    assert len({inode, os.stat(kv / "x").st_ino, os.stat(kv / "y").st_ino}) == 3


def test_the_mount_root(shared_mount: Mount, kv: Path) -> None:
    """Files can't be made outside a namespace, by any call."""
    put(kv / "x", OLD)
    (kv / "d").mkdir()
    root = shared_mount.dir
    assert errno_of(store, root / "file", b"x") == "EPERM"
    assert errno_of(os.open, root / "file.tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL) == "EPERM"
    assert errno_of(os.open, root / "file.lock", os.O_WRONLY | os.O_CREAT) == "EPERM"
    assert errno_of(os.mknod, root / "file") == "EPERM"
    assert errno_of(os.symlink, "kv", root / "link") == "EPERM"
    assert errno_of(os.link, kv / "x", root / "file") in ("EPERM", "EXDEV")
    assert errno_of(os.rename, kv / "x", root / "file") in ("EPERM", "EXDEV")
    assert errno_of(os.rename, kv / "d", root / "d") == "EXDEV"
    assert all(name == ".hcfs" or (root / name).is_dir() for name in os.listdir(root))
    assert load(kv / "x") == OLD


def test_a_thousand_renames_between_directories(make_mount: Callable[..., Mount]) -> None:
    """From staging to final names and on, by two processes at once: nothing is lost, and the space is that of what is
    left.
    """
    mount = make_mount()
    kv = mount.ns()
    (kv / "done").mkdir()

    def publish(writer: Actor, worker: int) -> None:
        for number in range(250):
            name = f"{worker}-{number}"
            writer.store(kv / f"{name}.tmp", b"%d" % number)
            writer.rename(kv / f"{name}.tmp", kv / name)
            writer.rename(kv / name, kv / "done" / name)

    with Actor() as one, Actor() as two:
        threads = [threading.Thread(target=publish, args=(actor, worker)) for worker, actor in enumerate((one, two))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert os.listdir(kv) == ["done"]
    names = {f"{worker}-{number}": b"%d" % number for worker in range(2) for number in range(250)}
    assert {name: load(kv / "done" / name) for name in os.listdir(kv / "done")} == names
    assert mount.status()["namespaces"]["kv"]["objects"] == 500
