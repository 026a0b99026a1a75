"""A small cache of verified granules."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock


class GranuleCache:
    """The granules verified last, for readers that take them in parts: a 128 KiB read-ahead would otherwise read and
    check each 256 KiB granule twice, and a 4 KiB one 64 times. Bounded in bytes; thread-safe."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._bytes = 0
        self._lock = Lock()
        self._granules: OrderedDict[tuple[int, int, int], bytes] = OrderedDict()

    def get(self, key: tuple[int, int, int]) -> bytes | None:
        """The granule of a key (oid, generation, granule)."""
        with self._lock:
            data = self._granules.get(key)
            if data is not None:
                self._granules.move_to_end(key)
            return data

    def put(self, key: tuple[int, int, int], data: bytes) -> None:
        with self._lock:
            if key in self._granules or len(data) > self._budget:
                return
            self._granules[key] = data
            self._bytes += len(data)
            while self._bytes > self._budget:
                _, old = self._granules.popitem(last=False)
                self._bytes -= len(old)
