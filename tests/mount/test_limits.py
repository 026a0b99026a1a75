"""Where something is used up: rows for objects, handles, memory; and sectors and granules of every size."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.harness.actors import Actor, errno_of, eventually, load, load_direct, pattern, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

MIB = 1 << 20


def test_the_most_objects(make_mount: Callable[..., Mount]) -> None:
    """Directories can't be evicted: ENOSPC at the limit that `hcfs info` states; nothing is lost at the next mount."""
    mount = make_mount(
        size="64M", mkfs=("--max-objects", "2000"), allow_warnings=["2000 objects, its limit .max_objects. set by mkfs"]
    )
    kv = mount.ns()
    limit = mount.status()["max_objects"]
    assert limit == os.statvfs(kv).f_files == 2000
    made = 0
    while (outcome := errno_of(os.mkdir, kv / f"{made}")) == "ok":
        made += 1
        assert made <= limit
    assert outcome == "ENOSPC"
    assert made >= limit - 10
    # Told by the call that begins the file, and by every other call that needs room.
    assert errno_of(os.open, kv / "file", os.O_WRONLY | os.O_CREAT) == "ENOSPC"
    assert errno_of(os.symlink, "target", kv / "link") == "ENOSPC"
    assert len([line for line in mount.log_lines() if "WARNING" in line]) == 1
    assert os.statvfs(kv).f_ffree <= 10
    os.rmdir(kv / "0")
    eventually(lambda: errno_of(put, kv / "file", b"x") == "ok", "a row is free again")
    names = sorted(os.listdir(kv))
    mount.umount()
    assert json.loads(hcfs("info", mount.source, "--json").stdout)["max_objects"] == limit
    mount.mount()
    assert sorted(os.listdir(kv)) == names
    assert load(kv / "file") == b"x"


@pytest.mark.parametrize("what", ["names", "xattrs"])
def test_the_most_metadata(make_mount: Callable[..., Mount], what: str) -> None:
    """Long names and extended attributes fill the region before the rows do: the same errno, from the call that would
    add more, and nothing that was acknowledged is missing after the next mount."""
    mount = make_mount(size="64M", mkfs=("--max-objects", "1000"), allow_warnings=["the metadata region is full"])
    kv, kept = mount.ns(), 0
    limit = json.loads(hcfs("info", mount.source, "--json").stdout)["metadata_limit_bytes"]
    if what == "names":
        while (outcome := errno_of(os.mkdir, kv / f"{kept:01000}")) == "ok":
            kept += 1
        assert kept * 1000 < limit < kept * 1200
    else:
        while (outcome := errno_of(os.setxattr, kv, f"user.{kept}", bytes(60_000))) == "ok":
            kept += 1
            if kept % 4 == 0:
                kv = kv / "deeper"
                kv.mkdir()
    assert outcome == "ENOSPC"
    assert mount.status()["metadata_bytes"] <= mount.status()["metadata_limit_bytes"] == limit
    before = {path: (sorted(os.listdir(path)), sorted(os.listxattr(path))) for path in (mount.ns(), kv)}
    fd = os.open(kv, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    mount.kill()
    mount.mount()
    after = {path: (sorted(os.listdir(path)), sorted(os.listxattr(path))) for path in before}
    assert mount.status()["state"] == "ok"
    assert after == before


def test_small_objects_make_room_for_each_other(make_mount: Callable[..., Mount]) -> None:
    """Files can be evicted: three times the limit of them, and no store fails."""
    mount = make_mount(size="64M", mkfs=("--max-objects", "500"), options="lookup_grace=0")
    kv = mount.ns()
    for number in range(1500):
        put(kv / f"{number}", b"%d" % number)
        assert mount.status()["objects"] <= 500 if number % 100 == 0 else True
    assert mount.status()["counters"]["evictions"] >= 1000
    names = os.listdir(kv)
    assert "1499" in names
    for name in names:
        # Some of those listed may be evicted by now.
        with contextlib.suppress(FileNotFoundError):
            assert load(kv / name) == name.encode()


def test_handles_and_lookups_come_back(make_mount: Callable[..., Mount]) -> None:
    """Thousands of opens, lookups, listings and versions: handles, descriptors and memory are as before."""
    mount = make_mount(size="64M")
    kv = mount.ns()
    for number in range(50):
        put(kv / f"{number}", b"x")

    def work(count: int) -> None:
        for number in range(count):
            assert load(kv / f"{number % 50}") == b"x"
            assert errno_of(os.stat, kv / f"absent {number}") == "ENOENT"
            if number % 10 == 0:
                os.listdir(kv)
                os.truncate(kv / "0", 1)

    def now() -> tuple[int, int, int]:
        lines = Path(f"/proc/{mount.pid}/status").read_text().splitlines()
        resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
        return mount.status()["open_handles"], len(os.listdir(f"/proc/{mount.pid}/fd")), resident

    work(500)
    handles, descriptors, resident = now()
    work(5000)
    eventually(lambda: now()[0] <= handles, "handles are given back")
    assert now()[1] <= descriptors + 2
    assert now()[2] < resident + 16 * 1024


def test_memory_stays_within_its_budget(make_mount: Callable[..., Mount], tmp_path: Path) -> None:
    """16 MiB for buffers, 16 threads that write and read 8 MiB each, twice over: nothing fails, and it grows no
    further.
    """
    mount = make_mount()
    mount.umount()
    mount.mount("", "--memory", "16M")
    kv = mount.ns()

    def peak() -> int:
        lines = Path(f"/proc/{mount.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024

    before = peak()
    problems: list[str] = []

    def work(number: int) -> None:
        try:
            content = pattern(number, 8 * MIB)
            for _ in range(2):
                put(kv / f"{number}", content)
                if load_direct(kv / f"{number}") != content:
                    problems.append(f"{number}: wrong bytes")
        except OSError as error:
            problems.append(f"{number}: {error}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    status = mount.status()
    memory, plane = status["memory"], status["data_plane"] == "threads"
    writes = 4 * MIB if plane else 0
    # Beside the budget: the threads' stacks, and with pyfuse3 alone requests of 1 MiB that the kernel has handed over.
    assert peak() - before < (16 + (8 if plane else 64)) * MIB
    assert memory["budget"] == 16 * MIB - writes
    assert memory["peak"] <= memory["budget"]


@pytest.mark.parametrize("sector", [512, 4096])
def test_sectors(make_loop: Callable[..., Path], make_mount: Callable[..., Mount], sector: int) -> None:
    """Drives with 512-byte and with 4,096-byte sectors, by direct I/O."""
    device = make_loop("64M", sector=sector)
    hcfs("mkfs", device)
    mount = make_mount(device)
    kv = mount.ns()
    assert mount.status()["io"] == "direct"
    content = pattern(sector, 3 * MIB + 1)
    with Actor() as writer:
        writer.store(kv / "x.tmp", content)
        writer.rename(kv / "x.tmp", kv / "x")
    assert load_direct(kv / "x") == content
    mount.kill()
    mount.mount()
    mount.umount()
    hcfs("fsck", device, "--data")


@pytest.mark.parametrize("granule", ["64K", "1M"])
def test_granules(make_mount: Callable[..., Mount], granule: str) -> None:
    """The smallest and the largest: sizes around them are exact, parts verify by themselves."""
    mount = make_mount(size="64M", mkfs=("--granule", granule))
    kv = mount.ns()
    size = mount.status()["granule_bytes"]
    assert size == {"64K": 65_536, "1M": 1_048_576}[granule]
    for length in (size - 1, size, size + 1, 3 * size + 4097):
        put(kv / f"{length}", pattern(length, length))
    mount.umount()
    mount.mount()
    for length in (size - 1, size, size + 1, 3 * size + 4097):
        content = pattern(length, length)
        with open(kv / f"{length}", "rb") as file:
            assert os.pread(file.fileno(), 5000, length - 3000) == content[-3000:]
        assert load_direct(kv / f"{length}", 4096 * 5) == content


@pytest.mark.parametrize("granule", ["32K", "2M", "96K", "100000", "0"])
def test_odd_granules_are_refused(tmp_path: Path, granule: str) -> None:
    """Not a power of two from 64 KiB to 1 MiB: said, and no file is made."""
    done = hcfs("mkfs", tmp_path / "image", "--size", "64M", "--granule", granule, check=False)
    assert done.returncode in (1, 2)
    assert "granule" in done.stderr
    assert not (tmp_path / "image").exists()
