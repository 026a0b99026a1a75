"""An open handle pins its object's extents; eviction passes what is pinned; space comes back when handles close."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.harness.actors import Actor, errno_of, eventually, load, load_direct, pattern, pread_direct, put
from lab.harness.mounts import Mount

MIB = 1 << 20
CONTENT = pattern("pinned", 3 * MIB + 17)


@pytest.fixture
def small(make_mount: Callable[..., Mount]) -> Mount:
    """64 MiB, nothing protected by lookups."""
    return make_mount(size="64M", options="lookup_grace=0,commit_interval=0.1")


def fill(mount: Mount, kv: Path, times: float, prefix: str = "fill") -> None:
    """Store objects of 1 MiB, `times` the capacity in all; every store succeeds while something is evictable."""
    for number in range(int(mount.status()["capacity_bytes"] * times) // MIB):
        put(kv / f"{prefix}{number}", pattern(f"{prefix}{number}", MIB))


def add_up(mount: Mount) -> dict[str, int]:
    """The status, whose parts of the capacity must sum up to it."""
    status = mount.status()
    parts = ("used_bytes", "free_bytes", "staged_bytes", "pending_bytes", "quarantined_bytes")
    assert sum(status[part] for part in parts) == status["capacity_bytes"]
    return status


@pytest.mark.parametrize("how", ["unlinked", "replaced", "renamed over"])
def test_a_reader_keeps_what_has_lost_its_name(small: Mount, how: str) -> None:
    """The extents aren't reused while the device is filled twice over; they are pending until the handle closes."""
    kv = small.ns()
    put(kv / "x", CONTENT)
    fd = os.open(kv / "x", os.O_RDONLY | os.O_DIRECT)
    if how == "unlinked":
        os.unlink(kv / "x")
    elif how == "replaced":
        put(kv / "x", b"another")
    else:
        put(kv / "y", b"another")
        os.rename(kv / "y", kv / "x")
    fill(small, kv, 2)
    assert add_up(small)["pending_bytes"] >= len(CONTENT)
    assert b"".join(pread_direct(fd, MIB, start) for start in range(0, len(CONTENT), MIB)) == CONTENT
    os.close(fd)
    eventually(lambda: add_up(small)["pending_bytes"] < MIB, "the space comes back after the close")


def test_eviction_passes_the_coldest_when_it_is_open(small: Mount) -> None:
    """It stays, by name and by content, and the next ones go."""
    kv = small.ns()
    put(kv / "coldest", CONTENT)
    fd = os.open(kv / "coldest", os.O_RDONLY)
    put(kv / "second", CONTENT)
    fill(small, kv, 1.5)
    assert load(kv / "coldest") == CONTENT
    assert load_direct(kv / "coldest") == CONTENT
    assert errno_of(os.stat, kv / "second") == "ENOENT"
    assert small.status()["counters"]["evictions"] > 0
    os.close(fd)
    add_up(small)


def test_everything_pinned(small: Mount) -> None:
    """The next write gets ENOSPC in under a second, nothing is lost, and closing the handles gives the space back."""
    kv = small.ns()
    handles = []
    outcome, number = "ok", 0
    while outcome == "ok":
        outcome = errno_of(put, kv / f"{number}", pattern(number, MIB))
        if outcome == "ok":
            handles.append(os.open(kv / f"{number}", os.O_RDONLY))
            number += 1
    assert outcome == "ENOSPC"
    assert number * MIB > 0.8 * small.status()["capacity_bytes"]
    begun = time.monotonic()
    assert errno_of(put, kv / "more", bytes(4 * MIB)) == "ENOSPC"
    assert time.monotonic() - begun < 1
    space = os.statvfs(kv)
    assert space.f_bavail * 4096 < 4 * MIB
    for index in range(number):
        assert load(kv / f"{index}") == pattern(index, MIB)
    for handle in handles:
        os.close(handle)
    eventually(lambda: errno_of(put, kv / "more", CONTENT) == "ok", "space comes back when handles close")
    assert load(kv / "more") == CONTENT
    add_up(small)


def test_mappings_pin_too(small: Mount) -> None:
    """A mapping whose descriptor was closed keeps the object's bytes, untouched pages included."""
    kv = small.ns()
    put(kv / "x", CONTENT)
    with Actor() as reader:
        fd = reader.open(kv / "x", os.O_RDONLY)
        reader.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        mapping = reader.map_file(fd, len(CONTENT))
        reader.close(fd)
        os.unlink(kv / "x")
        fill(small, kv, 2)
        assert reader.map_read(mapping) == CONTENT


def test_least_recently_used_goes_first(small: Mount) -> None:
    """Objects opened again after they were stored outlive those that weren't; the others go in the order of their
    stores.
    """
    kv = small.ns()
    for number in range(20):
        put(kv / f"{number}", pattern(number, MIB))
    with Actor() as reader:
        for number in range(5):
            assert reader.load(kv / f"{number}") == pattern(number, MIB)
    fill(small, kv, 0.7)
    eventually(lambda: small.status()["counters"]["evictions"] > 0, "the high watermark is passed")
    gone: list[int] = []

    def all_are_seen() -> bool:
        gone[:] = [number for number in range(20) if errno_of(os.stat, kv / f"{number}") == "ENOENT"]
        return bool(small.status()["counters"]["evictions"] == len(gone))

    eventually(all_are_seen, "the background has gone down to its mark, and the kernel was told")
    assert gone == list(range(5, 5 + len(gone)))
    assert small.status()["counters"]["evicted_bytes"] == len(gone) * MIB


def test_a_lookup_protects(make_mount: Callable[..., Mount]) -> None:
    """LMCache asks `exists` first and loads later: what was looked up stays for lookup_grace, whatever is stored
    meanwhile.
    """
    mount = make_mount(size="64M", options="lookup_grace=3600")
    kv = mount.ns()
    for number in range(10):
        put_unseen(kv / f"{number}", pattern(number, MIB))
    with Actor() as client:
        for number in (1, 4, 7):
            assert client.stat(kv / f"{number}").st_size == MIB
    for number in range(150):
        put_unseen(kv / f"more{number}", bytes(MIB))
    assert mount.status()["counters"]["evictions"] > 50
    kept = [number for number in range(10) if errno_of(os.stat, kv / f"{number}") == "ok"]
    assert kept == [1, 4, 7]
    for number in kept:
        assert load_direct(kv / f"{number}") == pattern(number, MIB)


def put_unseen(path: Path, data: bytes) -> None:
    """Store as publishers do, without a lookup of the committed name afterwards."""
    tmp = f"{path}.tmp"
    Path(tmp).write_bytes(data)
    os.rename(tmp, path)


def test_evicted_names_are_gone_from_the_kernels_cache(small: Mount) -> None:
    """Names that the kernel had cached as present, hard links included, are ENOENT after eviction; listings agree."""
    kv = small.ns()
    (kv / "links").mkdir()
    for number in range(20):
        put(kv / f"{number}", pattern(number, MIB))
        os.link(kv / f"{number}", kv / "links" / f"{number}")
    with Actor() as other:
        for number in range(20):
            assert other.stat(kv / f"{number}").st_ino == other.stat(kv / "links" / f"{number}").st_ino
        fill(small, kv, 1.5)
        before = set(other.listdir(kv))
        outcomes = {}
        for number in range(20):
            outcomes[f"{number}"] = outcome = errno_of(other.open, kv / f"{number}", os.O_RDONLY)
            assert errno_of(other.stat, kv / "links" / f"{number}") in (outcome, "ENOENT")
            assert errno_of(other.stat, kv / f"{number}") in (outcome, "ENOENT")
        outcomes |= {name: errno_of(other.load, kv / name) for name in before if name.startswith("fill")}
        # Eviction down to the low watermark may still be going on, but nothing comes back.
        after = set(other.listdir(kv))
        for name, outcome in outcomes.items():
            assert outcome == "ok" or (outcome == "ENOENT" and name not in after)
            assert outcome == "ENOENT" or name in before
        assert "0" not in before
        assert outcomes["0"] == "ENOENT"


def test_evicted_between_stat_and_open_and_read(small: Mount) -> None:
    """Readers beside a writer that makes everything go: each load is ENOENT or the whole right bytes, never another
    error.
    """
    kv = small.ns()
    problems: list[str] = []
    hits = 0
    done = threading.Event()

    def read(reader: Actor, worker: int) -> None:
        nonlocal hits
        number = worker
        while not done.is_set():
            name = f"fill{number % 120}"
            number += 7
            try:
                size = reader.stat(kv / name).st_size
                content = reader.load_direct(kv / name) if number % 2 else reader.load(kv / name)
            except FileNotFoundError:
                continue
            except OSError as error:
                problems.append(f"{name}: {error!r}")
                continue
            hits += 1
            if size != MIB or content != pattern(name, MIB):
                problems.append(f"{name}: {size} and {len(content)} bytes, not its own")

    with Actor() as one, Actor() as two:
        threads = [threading.Thread(target=read, args=(actor, worker)) for worker, actor in enumerate((one, two))]
        for thread in threads:
            thread.start()
        fill(small, kv, 4)
        done.set()
        for thread in threads:
            thread.join()
    assert problems == []
    assert hits > 0
    assert small.status()["counters"]["evictions"] > 100
    add_up(small)


def test_a_remount_evicts_nothing(small: Mount) -> None:
    """Filled, killed, mounted: the same objects, the same usage, the same oldest that go first."""
    kv = small.ns()
    fill(small, kv, 0.8, "kept")
    os.fsync(fd := os.open(kv, os.O_RDONLY))
    os.close(fd)
    eventually(lambda: small.status()["pending_bytes"] == 0, "settled")
    before, names = small.status(), sorted(os.listdir(kv))
    small.kill()
    small.mount()
    after = small.status()
    assert sorted(os.listdir(kv)) == names
    for field in ("used_bytes", "free_bytes", "objects", "capacity_bytes", "staged_bytes", "quarantined_bytes"):
        assert after[field] == before[field]
    assert after["namespaces"]["kv"]["used_bytes"] == before["namespaces"]["kv"]["used_bytes"]
    assert after["counters"]["evictions"] == 0
    for name in names:
        assert load_direct(kv / name) == pattern(name, MIB)
    small.umount()
    small.mount()
    fill(small, kv, 0.4)
    gone = {name for name in names if errno_of(os.stat, kv / name) == "ENOENT"}
    assert gone
    assert small.status()["counters"]["evictions"] >= len(gone)
