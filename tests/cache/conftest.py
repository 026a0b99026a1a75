"""A real store in memory with a cache over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from hcfs.cache import Cache
from hcfs.device import BufferPool, MemoryDevice
from hcfs.store import BLOCK, ROOT_ID, Store, UnrecoveredStore, format_device


class Rig:
    """Store and cache on one MemoryDevice; `remount` opens both again. `now` is the cache's clock."""

    def __init__(self, size: int, max_objects: int, *, grace: float, high: float, low: float) -> None:
        self.now = 1000.0
        self.evicted: list[tuple[int, bytes]] = []
        self._settings = {"lookup_grace_s": grace, "high_watermark": high, "low_watermark": low}
        self.device = MemoryDevice(size)
        format_device(self.device, max_objects=max_objects)
        self.open()

    def open(self) -> None:
        self.store: Store = UnrecoveredStore.open(self.device, BufferPool(16 << 20)).recover()
        self.cache = Cache(
            self.store,
            entry_timeout_s=60,
            on_evicted=self.on_evicted,
            clock=lambda: self.now,
            sleep=self.sleep,
            **self._settings,
        )

    def sleep(self, seconds: float) -> None:
        """Waiting, on the cache's clock."""
        self.now += seconds

    def on_evicted(self, names: list[tuple[int, bytes]]) -> None:
        self.evicted += names

    def remount(self) -> None:
        """As after a clean end; MemoryDevice.close would lose the bytes."""
        self.store.commit()
        self.open()

    def namespace(self, name: str = "kv") -> int:
        """A directory at the root, made where it is absent; threads may ask for it at once."""
        with self.store.atomically():
            oid = self.store.lookup(ROOT_ID, name.encode())
            return oid if oid is not None else self.store.mkdir(ROOT_ID, name.encode(), 0o755, 0, 0)

    def put(self, name: str, blocks: int = 1, namespace: str = "kv") -> int:
        """Store an object of so many blocks; its id."""
        directory = self.namespace(namespace)
        staged = self.store.stage(None, namespace=directory, mode=0o644, uid=0, gid=0)
        self.store.assign(staged, self.cache.account(directory, name.encode()))
        try:
            for start in range(0, blocks, 256):
                staged.write(start * BLOCK, name.encode()[:1] * (min(256, blocks - start) * BLOCK))
            staged.seal()
        except BaseException:
            staged.abandon()
            raise
        return self.store.publish(staged, directory, name.encode())

    def names(self, namespace: str = "kv") -> list[str]:
        return [name.decode() for name, _ in self.store.list_directory(self.namespace(namespace))]

    def gone(self) -> list[str]:
        """Names that were told to have gone, in order."""
        return [name.decode() for _, name in self.evicted]

    def fill(self, blocks: int = 64, namespace: str = "kv") -> list[int]:
        """Objects until less than one fits, without evicting."""
        made = []
        while self.store.usage().free >= blocks * BLOCK:
            made.append(self.put(f"fill{len(made):05}", blocks, namespace))
        return made

    def check_usage(self) -> None:
        """What the cache counted is what the store says."""
        usage = self.store.usage()
        counted = [self.cache.namespaces.usage(ns) for ns in self.cache.namespaces.names().values()]
        assert sum(count.used_bytes for count in counted) == usage.used
        assert sum(count.objects for count in counted) == usage.files
        assert sum(count.staged_bytes for count in counted) == usage.staged
        assert usage.used + usage.free + usage.staged + usage.pending + usage.quarantined == usage.capacity


@pytest.fixture
def make_rig() -> Iterator[Callable[..., Rig]]:
    """`make_rig(size=16M, max_objects=1024, grace=0, high=0.95, low=0.90)`: checked for right counts at teardown."""
    with ExitStack() as stack:

        def make(
            size: int = 16 << 20, max_objects: int = 1024, *, grace: float = 0.0, high: float = 0.95, low: float = 0.90
        ) -> Rig:
            rig = Rig(size, max_objects, grace=grace, high=high, low=low)
            stack.callback(rig.check_usage)
            return rig

        yield make


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig()
