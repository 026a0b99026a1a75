"""Buffers that the bytes of WRITEs arrive in."""

from __future__ import annotations

import logging
import mmap
import threading

log = logging.getLogger(__name__)

_AGAIN = 0.1
"""Seconds until memory that the system refused is asked for again, if no buffer comes back before."""


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
        self._short = False
        self._changed = threading.Condition(threading.Lock())

    def take(self) -> memoryview:
        """A buffer with undefined content. Blocks while all are in use."""
        with self._changed:
            while True:
                if self._free:
                    return self._free.pop()
                if self._made < self.limit:
                    try:
                        buffer = mmap.mmap(-1, self.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                    except (OSError, MemoryError) as error:
                        self._note(error)
                    else:
                        self._made += 1
                        return memoryview(buffer)
                self._changed.wait(_AGAIN if self._made < self.limit else None)

    def _note(self, error: Exception) -> None:
        if not self._short:
            log.error(
                "%d buffers for writes, and no memory for one more (%s): writes wait for each other", self._made, error
            )
        self._short = True

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
