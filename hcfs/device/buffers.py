"""A bounded pool of page-aligned buffers: the daemon's I/O memory, with back-pressure."""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from hcfs.device.arena import Arena, anonymous

SMALLEST = 4096
"""Bytes of the smallest class of buffers; the others are its doubles."""

LARGE = 256 << 10
"""Buffers from this class on lie on huge pages."""


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """A moment of a BufferPool; sizes are bytes of whole buffers, so at least what was asked for."""

    budget: int
    """Most that in_use and idle may be together."""
    in_use: int
    """Handed out, and still referred to."""
    idle: int
    """Kept for the next request."""
    waits: int
    """Requests so far that had to wait for others to let go."""
    peak: int
    """Most that was ever in use at once."""


class BufferPool:
    """Hands out page-aligned memory until `budget` bytes are in use, then makes callers wait.

    A buffer is a plain memoryview; it goes back by itself when the last view of it (slices and casts included) is gone.
    Whoever waits is served before those who come later, so a large request isn't starved by small ones. Thread-safe. A
    thread that holds buffers while it asks for more can wait for itself: ask for all that one operation needs at once.
    """

    def __init__(self, budget: int) -> None:
        """budget: bytes, rounded down to whole pages of 4 KiB; at least one (ValueError)."""
        if budget < SMALLEST:
            raise ValueError(f"a budget of {budget} bytes holds no buffer: at least {SMALLEST} are needed")
        self.budget = budget // SMALLEST * SMALLEST
        self._turn = threading.Lock()
        # Buffers come home from __del__, which the garbage collector may call anywhere, in this class's locked sections
        # too: SimpleQueue.put is the one primitive made for that. They are booked by the next caller that holds the
        # turn.
        self._returned: SimpleQueue[memoryview] = SimpleQueue()
        self._lease_types: dict[int, type[_Lease]] = {}
        self._idle: defaultdict[int, list[memoryview]] = defaultdict(list)
        self._arenas: dict[int, Arena] = {}
        self._idle_bytes = 0
        self._in_use = 0
        self._peak = 0
        self._waits = 0
        self._copied_bytes = 0
        # Not the turn, which is kept while its holder waits for those who copy.
        self._copying = threading.Lock()

    @property
    def copied_bytes(self) -> int:
        """Bytes so far that were copied for their address's sake alone (`note_copy`)."""
        return self._copied_bytes

    def note_copy(self, length: int) -> None:
        """A user of the pool copied bytes from or to memory that didn't suit the medium."""
        with self._copying:
            self._copied_bytes += length

    def acquire(self, length: int) -> memoryview:
        """A writable, page-aligned, contiguous view of exactly `length` bytes ("B") with undefined content.

        Blocks while the budget is used up. ValueError for a length below 1 or above the budget.
        """
        size = self._class_of(length)
        with self._turn:
            self._book_returned()
            if self._in_use + size > self.budget:
                self._waits += 1
                while self._in_use + size > self.budget:
                    self._book(self._returned.get())
            return self._lend(size, length)

    def try_acquire(self, length: int) -> memoryview | None:
        """As acquire(), but None instead of waiting: for those who hold buffers already."""
        size = self._class_of(length)
        if not self._turn.acquire(blocking=False):
            return None
        try:
            self._book_returned()
            return None if self._in_use + size > self.budget else self._lend(size, length)
        finally:
            self._turn.release()

    def statistics(self) -> PoolStatistics:
        """Never waits."""
        if self._turn.acquire(blocking=False):
            try:
                self._book_returned()
            finally:
                self._turn.release()
        return PoolStatistics(self.budget, self._in_use, self._idle_bytes, self._waits, self._peak)

    def _class_of(self, length: int) -> int:
        if not 0 < length <= self.budget:
            raise ValueError(f"a buffer of {length} bytes can't come from a pool of {self.budget}")
        return min(max(SMALLEST, 1 << (length - 1).bit_length()), self.budget)

    def _lend(self, size: int, length: int) -> memoryview:
        piece = self._take(size)
        self._in_use += size
        self._peak = max(self._peak, self._in_use)
        lease_type = self._lease_types.get(size)
        if lease_type is None:
            lease_type = self._lease_types[size] = _lease_type(size)
        lease = lease_type.from_buffer(piece)
        lease.piece = piece
        lease.home = self._returned
        return memoryview(lease).cast("B")[:length]

    def _take(self, size: int) -> memoryview:
        """An idle piece of that size, or a new one for which idle ones of other sizes make room."""
        if self._idle[size]:
            self._idle_bytes -= size
            return self._idle[size].pop()
        for other in sorted(self._idle, reverse=True):
            while self._idle[other] and self._in_use + self._idle_bytes + size > self.budget:
                self._idle_bytes -= other
                piece = self._idle[other].pop()
                if other >= LARGE:
                    self._arenas[other].give(piece)
                # Others are dropped, not closed: the lease that ended may still be on its way out of its __del__ in
                # another thread.
        if size < LARGE:
            return memoryview(anonymous(size))
        if size not in self._arenas:
            self._arenas[size] = Arena(size)
        return self._arenas[size].take()

    def _book_returned(self) -> None:
        try:
            while True:
                self._book(self._returned.get_nowait())
        except Empty:
            pass

    def _book(self, piece: memoryview) -> None:
        self._in_use -= len(piece)
        self._idle_bytes += len(piece)
        self._idle[len(piece)].append(piece)


class _Lease(ctypes.Array[ctypes.c_ubyte]):
    """The object under every view of one buffer; its end is the buffer's return."""

    _type_ = ctypes.c_ubyte
    _length_ = 0
    piece: memoryview
    home: SimpleQueue[memoryview]

    def __del__(self) -> None:
        self.home.put(self.piece)


def _lease_type(size: int) -> type[_Lease]:
    return type(f"_Lease{size}", (_Lease,), {"_length_": size})
