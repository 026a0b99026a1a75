"""Memory for I/O, in pieces of one size, on huge pages where the kernel has them.

A request of 1 MiB in pages of 4 KiB is 256 pages to pin for direct I/O and to look up for each copy out of or into the
kernel; on a huge page it is one. docs/benchmarks.md has what that gives.
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress

HUGE = 2 << 20
"""Bytes of a huge page of x86-64, and of arm64 with pages of 4 KiB."""


class Arena:
    """Makes pieces. Not thread-safe."""

    def __init__(self, size: int) -> None:
        """size: bytes of each piece, whole pages of 4 KiB."""
        self.size = size
        self._region = HUGE if HUGE % size == 0 else -(-size // HUGE) * HUGE
        self._spare: list[memoryview] = []
        self._places: dict[int, tuple[mmap.mmap, int]] = {}
        """Mapping, and offset in it, of every piece, by its identity"""

    def take(self) -> memoryview:
        """A writable, page-aligned piece with undefined content; its pages come with its first use. OSError or
        MemoryError where the system has no address space for it."""
        if not self._spare:
            mapping, start = _map(self._region)
            for offset in range(start, start + self._region - self.size + 1, self.size):
                piece = memoryview(mapping)[offset : offset + self.size]
                self._places[id(piece)] = mapping, offset
                self._spare.append(piece)
        return self._spare.pop()

    def give(self, piece: memoryview) -> None:
        """Take one back, the very object that `take` returned, and give its pages to the system. Nothing may refer to
        its bytes any more."""
        mapping, offset = self._places[id(piece)]
        mapping.madvise(mmap.MADV_DONTNEED, offset, self.size)
        self._spare.append(piece)


def anonymous(size: int) -> mmap.mmap:
    """A mapping of memory of this process alone. OSError, MemoryError."""
    # Private: shared anonymous memory is shmem, whose page faults are slower.
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _map(size: int) -> tuple[mmap.mmap, int]:
    """A mapping, and where in it `size` bytes begin that are aligned to huge pages."""
    mapping = anonymous(size)
    # Linux 6.7 and later align a mapping of this size by themselves.
    if _address(mapping) % HUGE:
        mapping = anonymous(size + HUGE)
    with suppress(OSError):  # a kernel without them
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping, -_address(mapping) % HUGE


def _address(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))
