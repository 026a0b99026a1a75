"""Objects of mixed sizes, many being written at once, on a device that is full all the time: how many extents they
get.

Over a store in memory with the cache that evicts, so that only the allocator and the order of eviction matter. One
thread plays all writers, by turns, so a seed is a run. Sizes are half small (4 KiB to 256 KiB), a quarter middle (to 4
MiB) and a quarter large (to 64 MiB), each in requests of at most 1 MiB, as from the kernel. One store in ten removes
another object, besides.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

from hcfs.cache import Cache
from hcfs.device import BufferPool, MemoryDevice
from hcfs.errors import HcfsError
from hcfs.store import BLOCK, ROOT_ID, Store, UnrecoveredStore, format_device
from lab.space.looks import must

SIZE = "1G"
REQUEST = 1 << 20
CLASSES = {"small": (12, 18), "middle": (18, 22), "large": (22, 26)}
MOST_EXTENTS = {"small": 1.5, "middle": 8.0, "large": 80.0}
"""Extents an object, on the average, above which a run is a finding: one for each request of 1 MiB, and some."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of its own."""
    parser.add_argument("--turnover", type=float, default=40.0, help="capacities written in all (default: 40)")
    parser.add_argument("--writers", type=int, default=8, help="objects being written at once (default: 8)")
    parser.add_argument("--quota", action="store_true", help="the namespace has a quota of half the device")


class Run:
    """The store, and what is on it."""

    def __init__(self, size: int, seed: str) -> None:
        device = MemoryDevice(size)
        format_device(device, max_objects=65_536)
        self.store: Store = UnrecoveredStore.open(device, BufferPool(64 << 20)).recover()
        self.cache = Cache(self.store, lookup_grace_s=0, entry_timeout_s=1, on_evicted=lambda _: None)
        self.kv = self.store.mkdir(ROOT_ID, b"kv", 0o755, 0, 0)
        self.chance = random.Random(f"fragmentation {seed}")
        self.data = memoryview(bytearray(REQUEST))
        self.written = self.numbers = self.refused = 0

    def write_object(self) -> Generator[None]:
        """One object; yields between its requests."""
        kind = self.chance.choices(list(CLASSES), [2, 1, 1])[0]
        length = int(2 ** self.chance.uniform(*CLASSES[kind]))
        self.numbers += 1
        name = b"%s %d" % (kind.encode(), self.numbers)
        staged = self.store.stage(None, namespace=self.kv, mode=0o644, uid=0, gid=0)
        self.store.assign(staged, self.cache.account(self.kv, name))
        try:
            for start in range(0, length, REQUEST):
                staged.write(start, self.data[: min(REQUEST, length - start)])
                yield
            staged.seal()
        except HcfsError:
            self.refused += 1
            staged.abandon()
            return
        self.store.publish(staged, self.kv, name)
        self.written += length
        if self.chance.random() < 0.1:
            names = self.store.list_directory(self.kv)
            self.store.unlink(self.kv, self.chance.choice(names)[0])

    def keep_house(self) -> None:
        """What the mount's background does every second."""
        self.store.commit()
        if self.cache.over_high_watermark():
            self.cache.evict_to_watermark()
        if self.store.durability.checkpoint_due:
            self.store.checkpoint()

    def extents(self) -> dict[str, tuple[int, float, int]]:
        """Objects, extents an object, and most extents of one, by kind."""
        counts: defaultdict[str, list[int]] = defaultdict(list)
        for name, oid in self.store.list_directory(self.kv):
            counts[name.split()[0].decode()].append(len(self.store.content.extents_of(oid)))
        return {kind: (len(own), sum(own) / len(own), max(own)) for kind, own in sorted(counts.items())}


def run(options: argparse.Namespace, directory: Path) -> None:  # noqa: ARG001  # as the other campaigns
    """The campaign. Raises Finding."""
    from lab.harness.images import parse_size

    state = Run(parse_size(options.size), options.seed)
    capacity = state.store.usage().capacity
    if options.quota:
        state.cache.namespaces.set_option(state.kv, "quota", str(capacity // 2))
    writers = [state.write_object() for _ in range(options.writers)]
    due, kept = 0, 0
    print("capacities written | objects | mean (most) extents: small, middle, large | largest free run | free runs")
    while state.written < options.turnover * capacity:
        at = state.chance.randrange(options.writers)
        try:
            next(writers[at])
        except StopIteration:
            writers[at] = state.write_object()
        if state.written - kept > capacity // 50:
            kept = state.written
            state.keep_house()
        if state.written >= due * capacity:
            due = due + 1 if due < 5 else due + 5
            report(state, capacity)
    report(state, capacity)
    for kind, (_, mean, _) in state.extents().items():
        must(mean <= MOST_EXTENTS[kind], f"{kind} objects are in too many extents", mean)
    for writer in writers:
        writer.close()
    for name, _ in state.store.list_directory(state.kv):
        state.store.unlink(state.kv, name)
    state.store.commit()


def report(state: Run, capacity: int) -> None:
    """A line of the table."""
    usage, extents = state.store.usage(), state.extents()
    shown = ", ".join(f"{mean:.2f} ({most})" for _, mean, most in (extents.get(kind, (0, 0, 0)) for kind in CLASSES))
    print(
        f"{state.written / capacity:.1f} | {usage.files} | {shown} | {usage.largest_free / (1 << 20):.2f} MiB of"
        f" {usage.free // BLOCK * BLOCK / (1 << 20):.1f} MiB free | {usage.free_runs}",
        flush=True,
    )
