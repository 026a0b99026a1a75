"""Buffers that the bytes of WRITEs arrive in."""

from __future__ import annotations

import mmap
import threading


class Payloads:
    """Page-aligned buffers of one size, `limit` at most: who takes one more waits, and the kernel with it.
    Thread-safe."""

    def __init__(self, size: int, limit: int, kept: int) -> None:
        """size: bytes, whole pages. limit: 2 at least, one to read into while the other is written from. kept: idle
        buffers that stay; the pages of others go back to the system, and cost page faults when they are wanted
        again."""
        if limit < 2:
            raise ValueError(f"{limit} buffers are too few: 2 are needed")
        self.size = size
        self.limit = limit
        self.kept = kept
        self._free: list[memoryview] = []
        self._made = 0
        self._changed = threading.Condition(threading.Lock())

    def take(self) -> memoryview:
        """A buffer with undefined content. Blocks while all are in use."""
        with self._changed:
            while not self._free and self._made >= self.limit:
                self._changed.wait()
            if self._free:
                return self._free.pop()
            self._made += 1
        return memoryview(mmap.mmap(-1, self.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    def give(self, buffer: memoryview) -> None:
        """Give one back; nothing may refer to it any more."""
        with self._changed:
            if len(self._free) < self.kept:
                self._free.append(buffer)
            else:
                self._made -= 1
            self._changed.notify()

    @property
    def bytes_made(self) -> int:
        """Bytes of all buffers that there are."""
        return self._made * self.size
