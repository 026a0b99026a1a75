"""One worker of the parallel load: stores its own objects, reads everybody's, checks every byte that it reads.

Run as a script it is a process: load_worker.py DIRECTORY WORKER SEED SECONDS; `work` is the same for a thread.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import struct
import sys
import time
import zlib
from pathlib import Path

NAMES = 12
"""Objects of each worker."""
SIZES = [0, 1, 4095, 4096, 60_000, 262_144, 262_145, 700_001, 1_000_000]
_HEADER = struct.Struct("<IIQI")


def content(worker: int, name: int, generation: int, body: bytes) -> bytes:
    """An object that tells whose it is, which generation of the name, and whether it is whole."""
    return _HEADER.pack(worker, name, generation, zlib.crc32(body)) + body


def verify(data: bytes, worker: int, name: int) -> int:
    """The generation; AssertionError unless these are the bytes of one object stored under the name."""
    whose, which, generation, checksum = _HEADER.unpack_from(data)
    assert (whose, which) == (worker, name), f"{worker}/{name} holds {whose}/{which}"
    assert zlib.crc32(data[_HEADER.size :]) == checksum, f"{worker}/{name}: {len(data)} bytes that don't verify"
    return generation


class Worker:
    """The state of one: its generations, and the latest one that it has seen of each of the others' names."""

    def __init__(self, directory: Path, worker: int, workers: int, seed: str, by_close: float) -> None:
        """by_close: the share of stores that close publishes. 0 for a thread whose process others of it read from: they
        see its version under the final name while it is being written, as POSIX has it."""
        self.by_close = by_close
        self.directory = directory
        self.worker = worker
        self.workers = workers
        self.chance = random.Random(f"{seed} {worker}")
        self.generation = 0
        self.stored: dict[int, int | None] = {}
        self.seen: dict[tuple[int, int], int] = {}
        self.counts = {"stores": 0, "hits": 0, "misses": 0, "bytes": 0}

    def path(self, worker: int, name: int) -> Path:
        """Each worker's names lie in two directories that all share."""
        return self.directory / f"d{name % 2}" / f"{worker}-{name}"

    def store(self) -> None:
        """By a temporary name and a rename or by close, buffered or direct, new or over the old one."""
        name = self.chance.randrange(NAMES)
        self.generation += 1
        data = content(self.worker, name, self.generation, self.chance.randbytes(self.chance.choice(SIZES)))
        final = self.path(self.worker, name)
        by_rename = self.chance.random() >= self.by_close
        target = final.with_name(f"{final.name}.tmp") if by_rename else final
        direct = os.O_DIRECT if self.chance.random() < 0.3 else 0
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | direct, 0o644)
        try:
            written = 0
            while written < len(data):
                written += os.write(fd, data[written : written + self.chance.choice([1 << 20, 100_000])])
        finally:
            os.close(fd)
        if by_rename:
            os.rename(target, final)
        self.stored[name] = self.generation
        self.counts["stores"] += 1

    def remove(self) -> None:
        """One of its own names goes, if it hasn't been evicted."""
        name = self.chance.randrange(NAMES)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(self.worker, name))
        self.stored[name] = None

    def fetch(self, path: Path) -> bytes:
        """Whole, by one of the ways in which clients read."""
        way = self.chance.choice(["read", "pieces", "direct", "mmap"])
        fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if way == "direct" else 0))
        try:
            size = os.fstat(fd).st_size
            if way == "mmap":
                with mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
                    return mapping[:]
            if way == "pieces":
                starts = list(range(0, size, 50_000))
                self.chance.shuffle(starts)
                pieces = {start: os.pread(fd, 50_000, start) for start in starts}
                return b"".join(pieces[start] for start in sorted(pieces))
            with mmap.mmap(-1, size + mmap.PAGESIZE) as buffer:
                count = os.preadv(fd, [buffer], 0)
                assert count == size, f"{path}: {count} of {size} bytes in one {way}"
                return buffer[:size]
        finally:
            os.close(fd)

    def load(self) -> None:
        """Anybody's object: absent or whole, and never older than what was seen of it before."""
        worker, name = self.chance.randrange(self.workers), self.chance.randrange(NAMES)
        try:
            data = self.fetch(self.path(worker, name))
        except FileNotFoundError:
            self.counts["misses"] += 1
            return
        generation = verify(data, worker, name)
        self.counts["hits"] += 1
        self.counts["bytes"] += len(data)
        if worker == self.worker:
            assert generation == self.stored.get(name), f"own {name}: {generation}, not {self.stored.get(name)}"
        assert generation >= self.seen.get((worker, name), 0), f"{worker}/{name} went back to {generation}"
        self.seen[worker, name] = generation

    def look(self) -> None:
        """Listings and attributes beside all that."""
        names = os.listdir(self.directory / f"d{self.chance.randrange(2)}")
        assert len(names) == len(set(names)), "a name is listed twice"
        assert not [name for name in names if name.endswith(".tmp")], "a staging name is listed"
        os.statvfs(self.directory)

    def run(self, seconds: float) -> dict[str, int]:
        """Work for so long, and say what was done."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            step = self.chance.choices([self.store, self.load, self.look, self.remove], [30, 60, 5, 5])[0]
            step()
        return self.counts


if __name__ == "__main__":
    place, number, count, chosen, duration = sys.argv[1:]
    print(json.dumps(Worker(Path(place), int(number), int(count), chosen, 0.3).run(float(duration))))
