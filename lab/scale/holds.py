"""For how long others are kept waiting at most, in the processor's time and not in a clock's: what neighbours on the
machine do isn't in it.

A store without a mount; its lock notes for how much of its holder's processor time it was held at once."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from unittest.mock import patch

from hcfs.cache import Cache
from hcfs.store import ROOT_ID, Store
from lab.harness.many import OBJECT_BYTES, names, open_store

_RLock = threading.RLock


class NotingLock:
    """A re-entrant lock that remembers its longest hold."""

    def __init__(self) -> None:
        self._lock = _RLock()
        self._depth = 0
        self._since = 0.0
        self.longest_s = 0.0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        got = self._lock.acquire(blocking, timeout)
        if got:
            self._depth += 1
            if self._depth == 1:
                self._since = time.thread_time()
        return got

    def release(self) -> None:
        if self._depth == 1:
            self.longest_s = max(self.longest_s, time.thread_time() - self._since)
        self._depth -= 1
        self._lock.release()

    def _is_owned(self) -> bool:
        return self._lock._is_owned()  # type: ignore[attr-defined,no-any-return]

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def holds(image: Path, count: int) -> dict[str, float]:
    """Milliseconds of processor time for which the store's lock was held at most, by what was done; and what a full
    garbage collection took, which stops everybody."""
    with patch("threading.RLock", NotingLock):
        store = open_store(image)
    lock = store.atomically()
    assert isinstance(lock, NotingLock)
    cache = Cache(store, entry_timeout_s=1.0, on_evicted=lambda _: None)
    gc.collect()
    gc.freeze()
    namespace = store.lookup(ROOT_ID, b"kv")
    assert namespace is not None
    found: dict[str, float] = {}

    def noted(name: str, work: Callable[[], object]) -> None:
        lock.longest_s = 0.0
        work()
        found[name] = lock.longest_s * 1e3

    noted("creating", lambda: _create(store, namespace, count))
    noted("listing", lambda: sum(map(len, iter(store.listing(namespace).more, []))))
    noted("looking up", lambda: _look_up(store, cache, namespace))
    noted("commit with all accesses", store.commit)
    noted("checkpoint", store.checkpoint)
    noted("evicting", lambda: cache.evict_namespace(namespace, count * OBJECT_BYTES))
    begin = time.thread_time()
    gc.collect()
    found["garbage collection"] = (time.thread_time() - begin) * 1e3
    gc.unfreeze()
    store.close()
    return found


def _create(store: Store, namespace: int, count: int) -> None:
    for number in range(count):
        staged = store.stage(None, namespace=namespace, mode=0o644, uid=0, gid=0)
        staged.write(0, bytes(OBJECT_BYTES))
        staged.seal()
        store.publish(staged, namespace, b"created-%d" % number)
    store.commit()


def _look_up(store: Store, cache: Cache, namespace: int) -> None:
    for name in itertools.islice(names(), store.usage().files):
        oid = store.lookup(namespace, name)
        if oid is not None:
            cache.looked_up(oid)
    store.set_attributes(namespace, mode=0o755)
