"""What a remount shows: metadata as it was, what was synced, sizes to the byte, and nothing staged."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.harness.actors import Actor, digest, errno_of, eventually, load, load_direct, pattern, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

LONG = 3600
"""Seconds: a commit interval that no test lives to see, so that only what it is about makes things durable."""


def sync(path: Path) -> None:
    """fsync of a directory or a file by a read-only handle: forces a commit."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def described(top: Path) -> dict[str, Any]:
    """All that a tree holds: kinds, modes, owners, sizes, times, own xattrs, targets, contents."""
    tree: dict[str, Any] = {}
    for parent, directories, files in os.walk(top):
        for name in [".", *directories, *files]:
            path = os.path.join(parent, name)
            seen = os.lstat(path)
            own = []
            if not stat.S_ISLNK(seen.st_mode):
                own = [key for key in os.listxattr(path) if not key.startswith("user.hcfs.")]
            tree[os.path.relpath(path, top)] = (
                oct(seen.st_mode),
                (seen.st_uid, seen.st_gid),
                seen.st_mtime_ns,
                seen.st_nlink,
                {key: os.getxattr(path, key) for key in own},
                os.readlink(path) if stat.S_ISLNK(seen.st_mode) else "",
                digest(load(path)) if stat.S_ISREG(seen.st_mode) else "",
            )
    return tree


def build(kv: Path) -> None:
    """A tree with something of everything."""
    (kv / "a" / "b").mkdir(parents=True)
    put(kv / "a" / "x", pattern("x", 1_000_003))
    put(kv / "a" / "b" / "y", pattern("y", 77))
    put(kv / "empty", b"")
    os.link(kv / "a" / "x", kv / "a" / "b" / "link")
    os.symlink("../x", kv / "a" / "b" / "symlink")
    os.symlink("nowhere", kv / "dangling")
    for path in (kv / "a" / "x", kv / "a" / "b", kv / "empty"):
        os.setxattr(path, "user.note", pattern("note", 100))
        os.chmod(path, 0o751)
        os.chown(path, 1000, 2000)
    (kv / "m.lock").write_bytes(b"locked by 7")
    put(kv / "replaced", b"first")
    put(kv / "replaced", b"second")
    put(kv / "removed", b"gone")
    os.unlink(kv / "removed")
    os.rename(kv / "empty", kv / "renamed")
    put(kv / "shorter", pattern("shorter", 500_000))
    os.truncate(kv / "shorter", 4097)
    for path in (kv / "a" / "b", kv / "a", kv / "renamed", kv):
        os.utime(path, ns=(1_111_111_111_000_000_001, 1_222_222_222_000_000_002))
    os.utime(kv / "dangling", ns=(5, 6), follow_symlinks=False)


@pytest.mark.parametrize("ending", ["umount", "kill"])
def test_everything_is_as_it_was(make_mount: Callable[..., Mount], ending: str) -> None:
    """After an unmount without any fsync; after one fsync and a killed daemon. Inode numbers stay too."""
    mount = make_mount(options=f"commit_interval={LONG}")
    kv = mount.ns()
    build(kv)
    before, inode = described(kv), os.stat(kv / "a" / "x").st_ino
    status = mount.status()
    if ending == "umount":
        mount.umount()
    else:
        sync(kv)
        mount.kill()
    mount.mount()
    assert described(kv) == before
    assert os.stat(kv / "a" / "x").st_ino == inode
    assert mount.status()["used_bytes"] == status["used_bytes"]
    assert mount.status()["objects"] == status["objects"]
    mount.umount()
    hcfs("fsck", mount.source, "--data")


@pytest.mark.parametrize("of", ["the file", "its directory", "another directory"])
def test_fsync_makes_what_is_published_durable(make_mount: Callable[..., Mount], of: str) -> None:
    """fsync of anything commits everything that is visible."""
    mount = make_mount(options=f"commit_interval={LONG}")
    kv = mount.ns()
    put(kv / "x", b"synced")
    sync({"the file": kv / "x", "its directory": kv, "another directory": mount.dir}[of])
    put(kv / "later", b"not synced")
    mount.kill()
    mount.mount()
    assert load(kv / "x") == b"synced"
    assert errno_of(os.stat, kv / "later") == "ENOENT"


def test_the_commit_interval(make_mount: Callable[..., Mount]) -> None:
    """Without any fsync it is durable soon after."""
    mount = make_mount(options="commit_interval=0.1")
    kv = mount.ns()
    put(kv / "x", b"committed in time")
    commits = mount.status()["counters"]["group_commits"]
    put(kv / "y", b"makes another commit, after the one that may be under way")
    eventually(lambda: mount.status()["counters"]["group_commits"] > commits, "committed")
    mount.kill()
    mount.mount()
    assert load(kv / "x") == b"committed in time"


@pytest.mark.parametrize("ending", ["umount", "kill"])
def test_nothing_staged_is_left(make_mount: Callable[..., Mount], ending: str) -> None:
    """Open versions and closed ones under staging names are gone at the next mount, fsynced or not; their space is
    free.
    """
    mount = make_mount()
    kv = mount.ns()
    put(kv / "x", b"old")
    sync(kv)
    free = mount.status()["free_bytes"]
    with Actor() as writer:
        writer.store(kv / "closed.tmp", pattern("closed", 1 << 20))
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_TRUNC)
        writer.write_all(fd, pattern("open", 1 << 20))
        writer.fsync(fd)
        if ending == "kill":
            mount.kill()
        writer.kill()
    if ending == "umount":
        eventually(lambda: mount.status()["staged_objects"] == 1, "the killed writer's open version is abandoned")
        mount.umount()
    mount.mount()
    assert os.listdir(kv) == ["x"]
    assert load(kv / "x") == b"old"
    assert errno_of(os.stat, kv / "closed.tmp") == "ENOENT"
    status = mount.status()
    assert (status["staged_objects"], status["staged_bytes"]) == (0, 0)
    assert status["free_bytes"] + status["pending_bytes"] == free
    assert (mount.dir / ".hcfs" / "staged").read_text().strip() == ""


def test_sizes_to_the_byte(make_mount: Callable[..., Mount]) -> None:
    """After direct writes of whole blocks cut by ftruncate, as O_DIRECT writers end a file; also after a remount."""
    mount = make_mount()
    kv = mount.ns()
    sizes = [1, 511, 512, 4095, 4096, 4097, 8191, 262_143, 262_144, 262_145, 1_048_577]
    with Actor() as writer:
        for size in sizes:
            fd = writer.open(kv / f"{size}", os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
            rounded = -(-size // 4096) * 4096
            writer.pwrite_direct(fd, pattern(size, size) + b"\xee" * (rounded - size), 0)
            writer.ftruncate(fd, size)
            writer.close(fd)
            eventually(lambda size=size: errno_of(os.stat, kv / f"{size}") == "ok", "published")
    for _ in range(2):
        for size in sizes:
            assert os.stat(kv / f"{size}").st_size == size
            assert load_direct(kv / f"{size}") == load(kv / f"{size}") == pattern(size, size)
        mount.umount()
        mount.mount()


def test_a_mount_after_the_daemon_died(make_mount: Callable[..., Mount]) -> None:
    """kill -9 leaves a dead mount: callers get ENOTCONN, the next mount clears it, and so does umount."""
    mount = make_mount()
    kv = mount.ns()
    put(kv / "x", b"x")
    sync(kv)
    mount.kill()
    assert errno_of(load, kv / "x") == errno_of(os.listdir, mount.dir) == "ENOTCONN"
    mount.mount()
    assert load(kv / "x") == b"x"
    mount.kill()
    mount.umount()
    assert not mount.mounted
    assert os.listdir(mount.dir) == []
    mount.mount()
    assert load(kv / "x") == b"x"


def test_used_space_doesnt_drift(make_mount: Callable[..., Mount]) -> None:
    """Thousands of operations; then removing everything gives back the very numbers of the empty store."""
    mount = make_mount(options="commit_interval=0.2")
    kv = mount.ns()
    sync(kv)
    empty = mount.status()
    for number in range(1500):
        name = kv / f"{number % 40}"
        put(name, pattern(number, number * 37 % 30_000))
        if number % 7 == 0:
            os.truncate(name, number * 11 % 20_000)
        elif number % 11 == 0:
            os.rename(name, kv / f"{(number + 1) % 40}")
        elif number % 13 == 0:
            os.unlink(name)
    status = mount.status()
    blocks = sum(os.stat(kv / name).st_blocks for name in os.listdir(kv))
    assert status["used_bytes"] == status["namespaces"]["kv"]["used_bytes"] == blocks * 512
    assert status["namespaces"]["kv"]["objects"] == len(os.listdir(kv))
    for name in os.listdir(kv):
        os.unlink(kv / name)
    sync(kv)
    eventually(lambda: mount.status()["pending_bytes"] == 0, "nothing pending")
    after = mount.status()
    for field in ("used_bytes", "free_bytes", "staged_bytes", "quarantined_bytes", "objects", "staged_objects"):
        assert after[field] == empty[field]
    mount.umount()
    hcfs("fsck", mount.source, "--data")
