"""Reads pieces in order with several threads, never holding more than a budget that nobody has taken yet."""

from __future__ import annotations

import mmap
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from hcfs.errors import HcfsError
from hcfs.weights.errors import UnsupportedTensor
from hcfs.weights.header import Header
from hcfs.weights.pieces import Piece
from hcfs.weights.weight_file import IO, ReadCounters, WeightFile

SEGMENT = 4 << 20
"""Most bytes of one read: a piece is shared out among the threads in such segments."""


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """A moment of a ReadAhead; sizes are bytes."""

    budget: int
    """Most that may be in memory without having been handed over."""
    peak: int
    """Most that was."""
    direct_bytes: int
    """Read around the page cache (whole blocks, so more than the tensors have)."""
    buffered_bytes: int
    """Read through the page cache."""
    waited_seconds: float
    """How long the consumer waited for bytes."""


class _Loading:
    """A piece on its way."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.memory: mmap.mmap | None = None
        self.missing = piece.size
        self.error: BaseException | None = None
        try:
            if piece.size:
                self.memory = mmap.mmap(-1, piece.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            reason = f"there are no {piece.size} bytes of memory for it ({error.strerror})"
            self.error = UnsupportedTensor(piece.path, piece.tensors[0].info.name, reason)

    @property
    def ended(self) -> bool:
        """Whether it is read, or never will be."""
        return not self.missing or self.error is not None


class ReadAhead:
    """Hands out pieces, read in their order, as memory of their own (mmap, page-aligned; None for empty ones).

    Its threads start at once and end by themselves after the last piece, after an error, or at close(). A piece that
    couldn't be read raises its error from take(), after the pieces before it. One consumer; close() from any thread.
    """

    def __init__(self, files: Sequence[Header], pieces: Sequence[Piece], budget: int, threads: int, io: IO) -> None:
        """budget: bytes, at least as many as the largest piece takes (hcfs.weights.pieces.budget_for)."""
        self.budget = budget
        self._headers = {header.path: header for header in files}
        self._pieces = pieces
        self._io = io
        self._changed = threading.Condition()
        self._files: dict[str, WeightFile] = {}
        self._admitted = 0
        self._taken = 0
        self._segments: deque[tuple[_Loading, int]] = deque()
        self._loading: deque[_Loading] = deque()
        self._held = 0
        self._peak = 0
        self._waited = 0.0
        self._stopped = False
        self._closed = False
        self._counters = ReadCounters()
        # Daemons: a read that a hung filesystem never answers can't be ended, and mustn't hold up the interpreter.
        self._threads: list[threading.Thread] = []
        try:
            for _ in range(threads):
                thread = threading.Thread(target=self._work, name="hcfs-weights", daemon=True)
                thread.start()
                self._threads.append(thread)
        except BaseException:
            self.close()
            raise

    def take(self) -> tuple[Piece, mmap.mmap | None] | None:
        """The next piece and its memory; None after the last. Blocks until it is read; raises what its reading raised,
        and HcfsError when it was closed before.

        It counts towards the budget until let_go() is called with it.
        """
        with self._changed:
            if self._taken == len(self._pieces):
                return None
            began = time.monotonic()
            while not self._closed and not (self._loading and self._loading[0].ended):
                self._changed.wait()
            self._waited += time.monotonic() - began
            if self._closed:
                raise HcfsError("the stream was closed before its last tensor was taken; begin a new one")
            first = self._loading[0]
            if first.error is not None:
                raise first.error
            self._loading.popleft()
            self._taken += 1
            return first.piece, first.memory

    def let_go(self, piece: Piece) -> None:
        """The consumer has taken over the piece's memory, or done with it: it counts no longer."""
        with self._changed:
            self._held -= piece.size
            self._changed.notify_all()

    def statistics(self) -> StreamStatistics:
        """Never waits for I/O."""
        with self._changed:
            parts = [self._counters, *(file.counters for file in self._files.values())]
            return StreamStatistics(
                self.budget,
                self._peak,
                sum(each.direct_bytes for each in parts),
                sum(each.buffered_bytes for each in parts),
                self._waited,
            )

    def close(self) -> None:
        """End the threads, close the files, free what wasn't taken. Waits for the reads under way (at most SEGMENT
        bytes a thread). May be called again, from any thread."""
        with self._changed:
            self._stopped = self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        with self._changed:
            for file in self._files.values():
                counters = file.counters
                self._counters.direct_bytes += counters.direct_bytes
                self._counters.buffered_bytes += counters.buffered_bytes
                file.close()
            self._files.clear()
            self._segments.clear()
            self._loading.clear()

    def _work(self) -> None:
        while (segment := self._next_segment()) is not None:
            loading, offset = segment
            memory = loading.memory
            assert memory is not None  # only pieces with memory have segments
            error: BaseException | None = None
            count = min(SEGMENT, loading.piece.size - offset)
            try:
                with memoryview(memory) as whole, whole[offset : offset + count] as view:
                    self._files[loading.piece.path].read_into(view, loading.piece.start + offset)
            except BaseException as caught:
                error = caught
            # What a thread still refers to while it waits can't be freed by the consumer who dropped it.
            del segment, memory
            self._finish(loading, count, error)
            del loading

    def _next_segment(self) -> tuple[_Loading, int] | None:
        with self._changed:
            while True:
                if self._stopped:
                    return None
                if self._segments:
                    return self._segments.popleft()
                if self._admitted == len(self._pieces):
                    return None
                piece = self._pieces[self._admitted]
                if self._held + piece.size <= self.budget:
                    self._admit(piece)
                else:
                    self._changed.wait()

    def _admit(self, piece: Piece) -> None:
        if piece.path not in self._files:
            self._files[piece.path] = WeightFile(self._headers[piece.path], self._io)
        loading = _Loading(piece)
        self._admitted += 1
        self._loading.append(loading)
        self._held += piece.size
        self._peak = max(self._peak, self._held)
        if loading.error is None:
            self._segments.extend((loading, offset) for offset in range(0, piece.size, SEGMENT))
        else:
            self._stopped = True
        self._changed.notify_all()

    def _finish(self, loading: _Loading, count: int, error: BaseException | None) -> None:
        with self._changed:
            loading.missing -= count
            if error is not None:
                loading.error = loading.error or error
                self._stopped = True
            if not loading.missing or error is not None:
                self._changed.notify_all()
