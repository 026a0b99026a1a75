"""Buffers that the bytes of WRITEs arrive in."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

log = logging.getLogger(__name__)

_AGAIN = 0.1
"""Seconds until memory that the system refused is asked for again, if no buffer comes back before."""


class Memory(Protocol):
    """Where buffers come from. Not thread-safe."""

    size: int
    """Bytes of each, whole pages."""

    def take(self) -> memoryview:
        """A page-aligned buffer. OSError or MemoryError where the system has no more."""

    def give(self, piece: memoryview, /) -> None:
        """Give one back, and its pages to the system."""


class Payloads:
    """Page-aligned buffers, `limit` at most: who takes one more waits, and the kernel with it.
    Thread-safe."""

    def __init__(self, memory: Memory, limit: int, kept: int) -> None:
        """limit: 2 at least, one to read into while the other is written from. kept: idle
        buffers that stay; the pages of others go back to the system, and cost page faults when they are wanted
        again."""
        if limit < 2:
            raise ValueError(f"{limit} buffers are too few: 2 are needed")
        self.size = memory.size
        self.limit = limit
        self.kept = kept
        self._memory = memory
        self._made = 0
        self._free: list[memoryview] = []
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
                        buffer = self._memory.take()
                    except (OSError, MemoryError) as error:
                        self._note(error)
                    else:
                        self._made += 1
                        return buffer
                self._changed.wait(_AGAIN if self._made < self.limit else None)

    def _note(self, error: Exception) -> None:
        if not self._short:
            log.error(
                "%d buffers for writes, and no memory for one more (%s): writes wait for each other",
                self._made,
                error,
            )
        self._short = True

    def give(self, buffer: memoryview) -> None:
        """Give one back; nothing may refer to it any more."""
        with self._changed:
            if len(self._free) < self.kept:
                self._free.append(buffer)
            else:
                self._memory.give(buffer)
                self._made -= 1
            self._changed.notify()

    @property
    def bytes_made(self) -> int:
        """Bytes of all buffers that there are."""
        return self._made * self.size
