"""What the system calls mean: reads, writes, creation, attributes, and the refusals."""

from __future__ import annotations

import array
import errno
import fcntl
import mmap
import os
import random
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.mounts import Mount
from mount.actors import Actor, errno_of, eventually, fallocate, load, load_direct, pattern, put, store

CONTENT = pattern("syscalls", 1_000_003)


def test_writes_in_any_order(kv: Path) -> None:
    """Seeded writes, truncations and appends against a model, read back at each step and at the end."""
    for seed in range(8):
        chance, model = random.Random(seed), bytearray()
        with Actor() as writer:
            fd = writer.open(kv / "x", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            for step in range(60):
                action = chance.choice(["write", "write", "write", "truncate", "append"])
                if action == "truncate":
                    size = chance.choice([0, 1, 4095, 4096, 4097, chance.randrange(600_000), len(model)])
                    writer.ftruncate(fd, size)
                    del model[size:]
                    model.extend(bytes(size - len(model)))
                else:
                    data = pattern(f"{seed} {step}", chance.choice([1, 100, 4096, 8192, 33_333, 262_144]))
                    offset = len(model) if action == "append" else chance.randrange(600_000)
                    if chance.random() < 0.5:
                        offset &= -4096
                    assert writer.pwrite(fd, data, offset) == len(data)
                    model.extend(bytes(max(0, offset + len(data) - len(model))))
                    model[offset : offset + len(data)] = data
                assert writer.fstat(fd).st_size == len(model)
                probe = chance.randrange(len(model) + 10)
                assert writer.pread(fd, 50_000, probe) == model[probe : probe + 50_000]
            writer.close(fd)
            eventually(lambda: errno_of(os.stat, kv / "x") == "ok", "published")
            eventually(lambda model=model: load(kv / "x") == model, "published")
        assert load_direct(kv / "x") == model
        os.unlink(kv / "x")


def test_unwritten_bytes_are_zeros(make_mount: Callable[..., Mount]) -> None:
    """Also where the blocks held another object's bytes before."""
    mount = make_mount(size="64M", options="lookup_grace=0,commit_interval=0.1")
    kv = mount.ns()
    for number in range(60):
        put(kv / f"{number}", b"\xff" * (2 << 20))
    with Actor() as writer:
        fd = writer.open(kv / "holes", os.O_WRONLY | os.O_CREAT)
        for offset in (100, 9_000, 1_000_000, 5_000_001):
            writer.pwrite(fd, b"here", offset)
        writer.ftruncate(fd, 6_000_001)
        writer.pwrite(fd, b"gone", 5_900_000)
        writer.ftruncate(fd, 5_900_002)
        writer.ftruncate(fd, 6_000_001)
        writer.close(fd)
    expected = bytearray(6_000_001)
    for offset in (100, 9_000, 1_000_000, 5_000_001):
        expected[offset : offset + 4] = b"here"
    expected[5_900_000:5_900_002] = b"go"
    eventually(lambda: errno_of(os.stat, kv / "holes") == "ok", "published")
    assert load_direct(kv / "holes") == load(kv / "holes") == expected


def test_append(kv: Path) -> None:
    """O_APPEND writes at the end, whatever the offset; two handles of one process append to one version."""
    put(kv / "log", b"begin;")
    with Actor() as writer:
        first = writer.open(kv / "log", os.O_WRONLY | os.O_APPEND)
        second = writer.open(kv / "log", os.O_WRONLY | os.O_APPEND)
        for number in range(10):
            writer.lseek(first, 0, os.SEEK_SET)
            writer.write((first, second)[number % 2], b"%d;" % number)
        writer.close(first)
        writer.close(second)
    expected = b"begin;" + b"".join(b"%d;" % number for number in range(10))
    eventually(lambda: load(kv / "log") == expected, "published")


def test_reads(kv: Path) -> None:
    """Short only at the end; nothing past it; every offset and length, buffered and direct, aligned and not."""
    put(kv / "x", CONTENT)
    buffered = os.open(kv / "x", os.O_RDONLY)
    chance = random.Random(3)
    with Actor() as reader:
        handle = reader.open(kv / "x", os.O_RDONLY | os.O_DIRECT)
        for _ in range(100):
            offset = chance.choice([chance.randrange(1_000_003), chance.randrange(245) * 4096])
            length = chance.choice([1, 512, 4096, 65536, 300_000])
            assert os.pread(buffered, length, offset) == CONTENT[offset : offset + length]
            skew = chance.choice([0, 64, 512])
            assert reader.pread_direct(handle, length, offset, skew) == CONTENT[offset : offset + length]
        assert reader.pread_direct(handle, 1 << 20, 1_000_003) == b""
    for offset in (1_000_003, 1_000_004, 5_000_000):
        assert os.pread(buffered, 100, offset) == b""
    assert os.pread(buffered, 100, 1_000_000) == CONTENT[-3:]
    os.close(buffered)


@pytest.mark.parametrize("direct", [False, True])
def test_large_reads_are_whole(kv: Path, direct: bool) -> None:
    """One read of 64 MiB returns 64 MiB, also while signals arrive."""
    content = pattern("large", 64 << 20)
    put(kv / "large", content)
    fd = os.open(kv / "large", os.O_RDONLY | (os.O_DIRECT if direct else 0))
    previous = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    done = threading.Event()

    def disturb() -> None:
        while not done.wait(0.002):
            os.kill(os.getpid(), signal.SIGUSR1)

    noise = threading.Thread(target=disturb)
    noise.start()
    try:
        with mmap.mmap(-1, len(content)) as buffer:
            assert os.preadv(fd, [buffer], 0) == len(content)
            assert buffer[:] == content
    finally:
        done.set()
        noise.join()
        signal.signal(signal.SIGUSR1, previous)
        os.close(fd)
    os.unlink(kv / "large")


def test_mappings(kv: Path) -> None:
    """Shared and private mappings of a committed object; a private one's stores stay private."""
    put(kv / "x", CONTENT)
    with (kv / "x").open("rb") as file:
        with mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as shared:
            assert shared[:] == CONTENT
        with mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as private:
            private[10:14] = b"mine"
            assert private[:20] == CONTENT[:10] + b"mine" + CONTENT[14:20]
    assert load(kv / "x") == CONTENT


def test_unlink_of_an_open_object(kv: Path) -> None:
    """Gone by name for everybody; handles and mappings go on until they are closed."""
    put(kv / "x", CONTENT)
    with Actor() as reader:
        fd = reader.open(kv / "x", os.O_RDONLY)
        mapping = reader.map_file(fd, len(CONTENT))
        os.unlink(kv / "x")
        assert errno_of(reader.stat, kv / "x") == errno_of(os.stat, kv / "x") == "ENOENT"
        assert os.listdir(kv) == []
        assert reader.fstat(fd).st_nlink == 0
        put(kv / "x", b"another")
        assert reader.pread(fd, 1 << 20, 0) == CONTENT
        assert reader.map_read(mapping) == CONTENT
        assert reader.load(kv / "x") == b"another"
    assert errno_of(os.unlink, kv / "absent") == "ENOENT"


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


def test_copies_within_the_kernel(kv: Path) -> None:
    """copy_file_range, sendfile and SEEK_HOLE work as on any filesystem without holes."""
    put(kv / "x", CONTENT)
    with Actor() as writer:
        source, target = writer.open(kv / "x", os.O_RDONLY), writer.open(kv / "y", os.O_RDWR | os.O_CREAT)
        copied = 0
        while count := writer.copy_file_range(source, target, 300_000, copied, copied):
            copied += count
        assert copied == len(CONTENT)
        sent = writer.open(kv / "z", os.O_WRONLY | os.O_CREAT)
        while count := writer.sendfile(sent, source, writer.lseek(sent, 0, os.SEEK_CUR), 1 << 20):
            assert count > 0
        assert writer.lseek(source, 0, os.SEEK_HOLE) == len(CONTENT)
        assert writer.lseek(source, 5, os.SEEK_DATA) == 5
        for handle in (source, target, sent):
            writer.close(handle)
    for name in ("y", "z"):
        eventually(lambda name=name: errno_of(os.stat, kv / name) == "ok", "published")
        assert load(kv / name) == CONTENT


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


def test_handles_and_their_modes(kv: Path) -> None:
    """Reading through a write-only handle and the reverse are EBADF."""
    put(kv / "x", CONTENT)
    reading, writing = os.open(kv / "x", os.O_RDONLY), os.open(kv / "x", os.O_WRONLY)
    assert errno_of(os.write, reading, b"x") == "EBADF"
    assert errno_of(os.read, writing, 1) == "EBADF"
    os.close(reading)
    os.close(writing)
    assert load(kv / "x") == CONTENT


def test_an_inode_that_is_no_longer_current(kv: Path) -> None:
    """Opened anew through a handle of the replaced object, by which no lookup can find another one: ESTALE."""
    put(kv / "x", CONTENT)
    with Actor() as reader:
        fd = reader.open(kv / "x", os.O_RDONLY)
        assert reader.close(reader.open(f"/proc/self/fd/{fd}", os.O_RDONLY)) is None
        put(kv / "x", b"another")
        with pytest.raises(OSError) as refusal:
            reader.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
        assert refusal.value.errno == errno.ESTALE
        assert reader.pread(fd, 1 << 20, 0) == CONTENT
        assert reader.load(kv / "x") == b"another"


def test_access_times_are_no_writes(kv: Path) -> None:
    """Reading changes no inode and publishes nothing."""
    put(kv / "x", CONTENT)
    before = os.stat(kv / "x")
    for _ in range(3):
        assert load_direct(kv / "x") == CONTENT
    after = os.stat(kv / "x")
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


def test_blocks_are_told(kv: Path) -> None:
    """st_blocks counts 512-byte units of the blocks that the content occupies; st_blksize is whole blocks."""
    for size, blocks in ((0, 0), (1, 8), (4096, 8), (4097, 16), (1_000_003, 1960)):
        store(kv / "x", bytes(size))
        seen = put(kv / "x", bytes([1]) * size)
        assert (seen.st_size, seen.st_blocks) == (size, blocks)
        assert seen.st_blksize % 4096 == 0
