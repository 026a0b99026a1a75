"""What reads and writes mean: any order, holes, appends, lengths, mappings, copies made by the kernel."""

from __future__ import annotations

import errno
import mmap
import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.harness.actors import Actor, errno_of, eventually, load, load_direct, pattern, put, store
from lab.harness.mounts import Mount

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
