"""A fetch's bytes as they arrive, for those who opened the file before the whole of it was here.

A stream belongs to one attempt at the object. Its end is that the object is published, and read through a pin from then
on, or that it fails for good: another attempt's bytes are never spliced to it. The last granule is held back until the
end, so that whoever has read everything has read what was checked as a whole."""

from __future__ import annotations

import errno
import logging
import mmap
import threading
from collections.abc import Callable
from typing import NamedTuple

from hcfs.errors import HcfsError
from hcfs.faults import attempt
from hcfs.filesystem.calls import Awaiting, CallError
from hcfs.filesystem.handles.object_handle import ObjectHandle, ObjectReading
from hcfs.fuse.limits import AHEAD_WAITING, BACKGROUND
from hcfs.remote.listing.remote import Remote
from hcfs.store import Staged

log = logging.getLogger(__name__)

PAGE = mmap.PAGESIZE

REFUSED_KEPT = 1 << 16
"""Pages of a stream that are remembered as refused."""


class Waiting:
    """What waits in the streams of one mount, so that it holds up nobody else: READs of pages are background requests,
    of which the kernel has only so many under way. Thread-safe."""

    def __init__(self, tune: Callable[[bool], bool]) -> None:
        """tune: called with whether anybody reads what is being fetched; whether the kernel has more background
        requests then."""
        self._tune = tune
        self._lock = threading.Lock()
        self._readers = 0
        self._ahead = 0
        self._most = 0

    @property
    def full(self) -> bool:
        """Whether no more read-ahead may wait."""
        return self._ahead >= self._most

    def add_readers(self, count: int) -> None:
        """That many more open handles, or below 0 fewer, of streams that haven't ended."""
        with self._lock:
            before, self._readers = self._readers, self._readers + count
            if bool(before) != bool(self._readers):
                more = self._tune(bool(self._readers))
                self._most = AHEAD_WAITING if more else BACKGROUND // 2

    def add_ahead(self, count: int) -> None:
        """That many more READs, or below 0 fewer, that may be read-ahead wait."""
        with self._lock:
            self._ahead += count


class _Wait(NamedTuple):
    end: int
    """Bytes that must have arrived."""
    ahead: bool
    call_back: Callable[[], None]


class Stream:
    """One attempt's bytes. Thread-safe; its lock is held for memory only, and under it only that of what waits in all
    streams is taken."""

    def __init__(self, reading: ObjectReading, remote: Remote, staged: Staged, waiting: Waiting) -> None:
        self.remote = remote
        self.readers = 0
        """Open handles."""
        self._counted = 0
        """Those of them that count as waiting, which is until the end."""
        self._reading = reading
        self._store = reading.store
        self._staged = staged
        self._waiting = waiting
        self._lock = threading.Lock()
        self._arrived = 0
        self._waits: list[_Wait] = []
        self._was_opened = False
        self._ended = False
        self._failed = False
        self._told = False
        """Once: the kernel asks for every page of a granule that can't be read."""
        self._refused: set[int] = set()
        """Pages of READs that were refused."""
        self._published: ObjectHandle | None = None

    # --- for the fetch -----------------------------------------------------------------------------------------------

    def advance(self, arrived: int) -> None:
        """So many bytes are on the device."""
        with self._lock:
            self._arrived = arrived
            due = [wait for wait in self._waits if wait.end <= arrived]
            self._waits = [wait for wait in self._waits if wait.end > arrived]
        self._wake(due)

    def publish(self, oid: int) -> None:
        """The object is committed: its pin is the stream's while somebody has it open. The store's lock is held, since
        the object was published; `wake_all` is called when it isn't any more."""
        pin = self._store.pin(oid)
        with self._lock:
            self._ended = True
            opened = self.readers > 0
            if opened:
                self._published = ObjectHandle(pin, self._reading)
        if not opened:
            pin.release()

    def fail(self) -> bool:
        """Every read is EIO from now on, unless the stream has ended before; `wake_all` tells those who wait. Whether
        anybody has ever opened it."""
        with self._lock:
            if not self._ended:
                self._ended = self._failed = True
        return self._was_opened

    def wake_all(self) -> None:
        """The stream has ended: let everybody look again who waits. No other lock is held."""
        with self._lock:
            due, self._waits = self._waits, []
            counted, self._counted = self._counted, 0
        self._waiting.add_readers(-counted)
        self._wake(due)

    def _wake(self, due: list[_Wait]) -> None:
        self._waiting.add_ahead(-sum(wait.ahead for wait in due))
        for wait in due:
            attempt("telling who waits for bytes", wait.call_back)

    # --- for those who have it open ----------------------------------------------------------------------------------

    def open(self) -> bool:
        """One handle more; False when the stream has ended."""
        with self._lock:
            if self._ended:
                return False
            self.readers += 1
            self._was_opened = True
            self._counted += 1
            self._waiting.add_readers(1)
            return True

    def release(self) -> None:
        """One handle less. The fetch goes on without readers: the file is wanted in the cache."""
        with self._lock:
            self.readers -= 1
            published, left = self._published, self.readers
            if self._counted:
                self._counted -= 1
                self._waiting.add_readers(-1)
        if published is not None and not left:
            published.pin.release()

    def awaiting(self, offset: int, length: int, *, ahead: bool) -> Awaiting | None:
        """What to wait for before such a read; None when there is something to answer. ahead: it may be the kernel's
        own read-ahead; EAGAIN then when too many of them wait."""
        end = self._end(offset, length)
        if self._ended or end <= self._arrived:
            return None
        if ahead and self._waiting.full and not self._was_refused(offset, length):
            raise CallError(errno.EAGAIN)
        return Awaiting(lambda call_back: self._wait(_Wait(end, ahead, call_back)))

    def _was_refused(self, offset: int, length: int) -> bool:
        """Whether a READ there was refused before: then this one is the kernel's second try, for somebody who would get
        the error. Kernels that keep pages in larger pieces try again with such a piece."""
        first = offset // PAGE
        with self._lock:
            if first in self._refused:
                return True
            if len(self._refused) > REFUSED_KEPT:
                self._refused.clear()
            self._refused.update(range(first, -(-(offset + length) // PAGE)))
        return False

    def _wait(self, wait: _Wait) -> None:
        with self._lock:
            waits = not self._ended and wait.end > self._arrived
            if waits:
                self._waits.append(wait)
                self._waiting.add_ahead(wait.ahead)
        if not waits:
            wait.call_back()

    def _end(self, offset: int, length: int) -> int:
        """Bytes that must have arrived before these can be read: whole granules; for the last one more than there
        are."""
        size, granule = self.remote.listed.size, self._store.superblock.granule
        if offset >= size:
            return 0
        end = -(-min(offset + length, size) // granule) * granule
        return end if end < size else size + 1

    def read(self, offset: int, length: int) -> memoryview | bytes:
        """Verified bytes that have arrived, or of the object once it is published; short at the end of the file only.
        Blocks. EIO when the attempt has failed, and for bytes that can't be verified."""
        data = self._read(offset, length)
        return data.read_now(offset, length) if isinstance(data, ObjectHandle) else data

    def _read(self, offset: int, length: int) -> memoryview | ObjectHandle:
        """Bytes; or the published object's handle to read them by."""
        published = self._published
        if published is not None:
            return published
        length = min(length, self.remote.listed.size - offset)
        try:
            if self._failed:
                raise CallError(errno.EIO)
            if length <= 0:
                return memoryview(b"")
            data = self._store.partial_reads.read(self._staged, offset, length)
            if self._failed:
                raise CallError(errno.EIO)
        except HcfsError as error:
            published = self._published  # it may have been published since
            if published is not None:
                return published
            if not self._failed and not self._told:
                self._told = True
                log.warning("%s can't be read while it is fetched: %s", self.remote.listed.key, error)
            raise CallError(errno.EIO) from error
        return data
