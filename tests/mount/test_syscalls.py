"""What the other system calls mean: creation, directories, symlinks, attributes, and the refusals."""

from __future__ import annotations

import array
import fcntl
import os
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from lab.harness.actors import Actor, errno_of, eventually, fallocate, load, pattern, put
from lab.harness.mounts import Mount

CONTENT = pattern("syscalls", 1_000_003)


def test_creation_modes(kv: Path) -> None:
    """Mode less umask, the caller's ids, present times."""
    before = time.time_ns()
    with Actor() as writer:
        for mask, mode, expected in ((0o022, 0o666, 0o644), (0o077, 0o777, 0o700), (0, 0o1604, 0o1604)):
            writer.umask(mask)
            name = kv / f"{mask:o}-{mode:o}"
            writer.close(writer.open(name, os.O_WRONLY | os.O_CREAT, mode))
            made = eventually(lambda name=name: errno_of(os.stat, name) == "ok" and os.stat(name), "published")
            assert stat.S_ISREG(made.st_mode)
            assert made.st_mode & 0o7777 == expected
            writer.mkdir(f"{name}.d", mode)
            assert os.stat(f"{name}.d").st_mode & 0o7777 == expected
            for seen in (made, os.stat(f"{name}.d")):
                assert (seen.st_uid, seen.st_gid) == (os.getuid(), os.getgid())
                for when in (seen.st_mtime_ns, seen.st_ctime_ns, seen.st_atime_ns):
                    # The kernel's coarse clock, which it stamps files with elsewhere, may be a tick behind.
                    assert before - 20_000_000 <= when <= time.time_ns() + 20_000_000


def test_the_callers_ids_and_access(make_mount: Callable[..., Mount]) -> None:
    """Other users create as themselves, and the kernel checks access by mode and owner."""
    kv = make_mount(options="allow_other").ns()
    kv.chmod(0o1777)
    with Actor() as owner, Actor() as stranger:
        owner.become(1234, 4321, kv)
        stranger.become(1235, 4322, kv)
        owner.umask(0o027)
        owner.store("mine", CONTENT, 0, 0o666)
        owner.mkdir("dir", 0o777)
        owner.symlink("mine", "link")
        owner.mknod("node", 0o640 | stat.S_IFREG)
        for name, mode in (("mine", 0o640), ("dir", 0o750), ("node", 0o640)):
            made = eventually(lambda name=name: errno_of(os.stat, kv / name) == "ok" and os.stat(kv / name), "made")
            assert (made.st_uid, made.st_gid, made.st_mode & 0o7777) == (1234, 4321, mode)
        assert (os.lstat(kv / "link").st_uid, os.lstat(kv / "link").st_gid) == (1234, 4321)
        assert owner.load("mine") == CONTENT
        assert errno_of(stranger.open, "mine", os.O_RDONLY) == "EACCES"
        assert errno_of(stranger.open, "mine", os.O_WRONLY) == "EACCES"
        assert errno_of(stranger.truncate, "mine", 1) == "EACCES"
        assert errno_of(stranger.listdir, "dir") == "EACCES"
        assert errno_of(stranger.chmod, "mine", 0o777) == "EPERM"
        assert errno_of(stranger.chown, "mine", 1235, 4322) == "EPERM"
        assert errno_of(stranger.unlink, "mine") == "EPERM"
        assert errno_of(stranger.rename, "mine", "theirs") == "EPERM"
        assert errno_of(stranger.mkdir, "../namespace") == "EACCES"
        assert load(kv / "mine") == CONTENT
        owner.chmod("mine", 0o644)
        assert stranger.load("mine") == CONTENT
        owner.rename("mine", "still mine")
        owner.unlink("still mine")


def test_mknod(kv: Path) -> None:
    """A regular file is created, empty; other kinds are EPERM."""
    with Actor() as maker:
        maker.mknod(kv / "file", 0o640 | stat.S_IFREG)
        made = os.stat(kv / "file")
        assert (made.st_size, stat.S_ISREG(made.st_mode), made.st_mode & 0o7777) == (0, True, 0o640)
        assert errno_of(maker.mknod, kv / "file", 0o640 | stat.S_IFREG) == "EEXIST"
        assert errno_of(maker.mkfifo, kv / "fifo") == "EPERM"
        assert errno_of(maker.mknod, kv / "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3)) == "EPERM"
        assert errno_of(maker.mknod, kv / "disk", 0o600 | stat.S_IFBLK, os.makedev(7, 0)) == "EPERM"
        assert errno_of(maker.mknod, kv / "socket", 0o600 | stat.S_IFSOCK) == "EPERM"
    assert os.listdir(kv) == ["file"]


def test_what_is_not_supported(kv: Path) -> None:
    """fallocate and O_TMPFILE say EOPNOTSUPP, and programs go on without; an unknown ioctl is ENOTTY, the kernel's
    word for it.
    """
    fd = os.open(kv / "x", os.O_RDWR | os.O_CREAT)
    for mode in (0, 1, 3, 16):
        assert errno_of(fallocate, fd, mode, 0, 8192) == "EOPNOTSUPP"
    os.posix_fallocate(fd, 0, 8192)
    assert os.fstat(fd).st_size == 8192
    assert errno_of(os.open, kv, os.O_TMPFILE | os.O_RDWR) == "EOPNOTSUPP"
    assert errno_of(fcntl.ioctl, fd, 0x5401, array.array("b", bytes(64))) == "ENOTTY"
    os.close(fd)
    assert os.stat(kv / "x").st_size == 8192


def test_directories(kv: Path) -> None:
    """Links counted, refusals as POSIX has them, deep paths."""
    os.mkdir(kv / "d")
    assert errno_of(os.mkdir, kv / "d") == "EEXIST"
    os.mkdir(kv / "d" / "e")
    assert os.stat(kv / "d").st_nlink == 3
    assert errno_of(os.rmdir, kv / "d") == "ENOTEMPTY"
    put(kv / "d" / "e" / "x", b"x")
    assert errno_of(os.rmdir, kv / "d" / "e") == "ENOTEMPTY"
    assert errno_of(os.rmdir, kv / "d" / "e" / "x") == "ENOTDIR"
    assert errno_of(os.unlink, kv / "d" / "e") == "EISDIR"
    assert errno_of(os.open, kv / "d", os.O_WRONLY) == "EISDIR"
    assert errno_of(os.open, kv / "d" / "e" / "x" / "y", os.O_RDONLY) == "ENOTDIR"
    os.unlink(kv / "d" / "e" / "x")
    os.rmdir(kv / "d" / "e")
    assert os.stat(kv / "d").st_nlink == 2
    os.rmdir(kv / "d")
    assert errno_of(os.stat, kv / "d") == "ENOENT"
    deep = kv.joinpath(*["directory"] * 50)
    deep.mkdir(parents=True)
    put(deep / "x", CONTENT)
    assert load(deep / "x") == CONTENT


def test_sixteen_processes_make_one_namespace(shared_mount: Mount, kv: Path) -> None:
    """One wins, the rest get EEXIST; mkdir -p always works."""
    path = shared_mount.dir / f"{kv.name}-raced"
    actors = [Actor() for _ in range(16)]
    try:
        for actor in actors:
            actor.begin("mkdir", path)
        outcomes = [errno_of(actor.result) for actor in actors]
    finally:
        for actor in actors:
            actor.__exit__(None, None, None)
    assert sorted(outcomes) == ["EEXIST"] * 15 + ["ok"]
    makers = [subprocess.Popen(["mkdir", "-p", f"{path}-p/a/b"]) for _ in range(16)]
    assert [maker.wait(30) for maker in makers] == [0] * 16
    assert (shared_mount.dir / f"{path.name}-p" / "a" / "b").is_dir()


def test_rmdir_under_a_version_being_written(kv: Path) -> None:
    """Others see an empty directory. Its writer either keeps it from going, or has nowhere to publish."""
    os.mkdir(kv / "d")
    with Actor() as writer:
        fd = writer.open(kv / "d" / "x", os.O_WRONLY | os.O_CREAT)
        writer.write(fd, CONTENT)
        outcome = errno_of(os.rmdir, kv / "d")
        writer.close(fd)
    if outcome == "ok":
        assert os.listdir(kv) == []
    else:
        assert outcome == "ENOTEMPTY"
        eventually(lambda: errno_of(os.stat, kv / "d" / "x") == "ok", "published")


def test_symlinks(kv: Path) -> None:
    """Kept as written, followed by the kernel, dangling or not."""
    put(kv / "x", CONTENT)
    (kv / "snapshots").mkdir()
    os.symlink("../x", kv / "snapshots" / "link")
    os.symlink("nowhere" * 100, kv / "dangling")
    assert os.readlink(kv / "snapshots" / "link") == "../x"
    assert os.readlink(kv / "dangling") == "nowhere" * 100
    seen = os.lstat(kv / "snapshots" / "link")
    assert stat.S_ISLNK(seen.st_mode)
    assert seen.st_size == 4
    assert load(kv / "snapshots" / "link") == CONTENT
    assert errno_of(os.stat, kv / "dangling") in ("ENOENT", "ENAMETOOLONG")
    assert errno_of(os.symlink, "y", kv / "dangling") == "EEXIST"
    os.rename(kv / "dangling", kv / "renamed")
    assert os.readlink(kv / "renamed") == "nowhere" * 100
    os.unlink(kv / "snapshots" / "link")
    assert load(kv / "x") == CONTENT
    assert errno_of(os.open, kv / "renamed", os.O_RDONLY | os.O_NOFOLLOW) == "ELOOP"
    assert errno_of(os.readlink, kv / "x") == "EINVAL"


def test_attributes(kv: Path) -> None:
    """chmod, chown and utimens, by path and by handle, to the nanosecond; ctime moves, the object doesn't."""
    inode = put(kv / "x", CONTENT).st_ino
    with Actor() as other:
        for path in (kv / "x", kv):
            before = os.stat(path).st_ctime_ns
            os.chmod(path, 0o5751)
            os.chown(path, 77, 88)
            os.utime(path, ns=(1_111_111_111_222_222_222, 3_333_333_333_444_444_444))
            seen = other.stat(path)
            assert (seen.st_mode & 0o7777, seen.st_uid, seen.st_gid) in ((0o5751, 77, 88), (0o1751, 77, 88))
            assert (seen.st_atime_ns, seen.st_mtime_ns) == (1_111_111_111_222_222_222, 3_333_333_333_444_444_444)
            assert seen.st_ctime_ns >= before
            os.chown(path, 0, -1)
            assert (other.stat(path).st_uid, other.stat(path).st_gid) == (0, 88)
        os.utime(kv / "x", ns=(-1_000_000_001, 0))
        assert (other.stat(kv / "x").st_atime_ns, other.stat(kv / "x").st_mtime_ns) == (-1_000_000_001, 0)
        os.symlink("x", kv / "link")
        os.utime(kv / "link", ns=(5, 6), follow_symlinks=False)
        os.chown(kv / "link", 5, 6, follow_symlinks=False)
        seen = other.lstat(kv / "link")
        assert (seen.st_atime_ns, seen.st_mtime_ns, seen.st_uid, seen.st_gid) == (5, 6, 5, 6)
    assert os.stat(kv / "x").st_ino == inode
    assert load(kv / "x") == CONTENT


def test_modification_times(kv: Path) -> None:
    """A write sets the version's, creation and removal of names set the directory's."""
    put(kv / "x", b"old")
    os.utime(kv / "x", ns=(10**18, 10**18))
    os.utime(kv, ns=(10**18, 10**18))
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY)
        writer.write(fd, b"new")
        writer.close(fd)
    eventually(lambda: os.stat(kv / "x").st_mtime_ns > 10**18, "the write's time")
    os.utime(kv, ns=(10**18, 10**18))
    (kv / "d").mkdir()
    assert os.stat(kv).st_mtime_ns > 10**18
    os.utime(kv, ns=(10**18, 10**18))
    os.unlink(kv / "x")
    assert os.stat(kv).st_mtime_ns > 10**18
