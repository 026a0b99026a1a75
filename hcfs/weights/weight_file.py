"""One weight file, read through the page cache or around it."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from errno import EINVAL, EOPNOTSUPP
from typing import Literal, get_args

from hcfs.errors import UsageError
from hcfs.weights.errors import DamagedWeights, UnreadableWeights
from hcfs.weights.header import Header
from hcfs.weights.pieces import BLOCK
from hcfs.weights.residency import resident_fraction

IO = Literal["auto", "direct", "buffered"]
"""How bytes are read: `direct` around the page cache where the filesystem takes O_DIRECT, `buffered` through it, `auto`
direct except for what is in the page cache already."""

_REFUSED = (EINVAL, EOPNOTSUPP)
_CACHED = 0.5
"""From this part on a run counts as cached: reading it around the cache would go to the device for all of it."""


def check_io(io: str) -> None:
    """UsageError unless `io` is one of IO."""
    if io not in get_args(IO):
        raise UsageError(f"there is no way {io!r} to read: use {', '.join(get_args(IO))}")


@dataclass(slots=True)
class ReadCounters:
    """Bytes read so far, by the way they came."""

    direct_bytes: int = 0
    buffered_bytes: int = 0


class WeightFile:
    """A weight file, opened by the first read; its descriptors are closed by close(). Thread-safe but for close()."""

    def __init__(self, header: Header, io: IO) -> None:
        """Opens nothing yet: an open may take long, on hcfs with `verify=open` as long as reading the file."""
        self.path = header.path
        self.size = header.file_bytes
        self._identity = header.identity
        self._io = io
        self._opening = threading.Lock()
        self._lock = threading.Lock()
        self._counters = ReadCounters()
        self._fd: int | None = None
        self._direct: int | None = None
        self._refused = io == "buffered"

    def _open(self) -> int:
        """The descriptor for reads through the page cache, opened by whoever comes first, together with the other."""
        with self._opening:
            if self._fd is not None:
                return self._fd
            try:
                fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise UnreadableWeights(self.path, error, "opened", was_there=True) from error
            status = os.fstat(fd)
            if (status.st_dev, status.st_ino, status.st_mtime_ns) != self._identity or status.st_size != self.size:
                os.close(fd)
                raise DamagedWeights(self.path, "it was replaced or changed after its header was read")
            if not self._refused:
                try:
                    # By way of /proc: the name may lead to another file by now.
                    self._direct = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
                except OSError:
                    self._refused = True
            self._fd = fd
            return fd

    @property
    def counters(self) -> ReadCounters:
        """Bytes read so far."""
        with self._lock:
            return ReadCounters(self._counters.direct_bytes, self._counters.buffered_bytes)

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill `view` from `offset`, as far as the file goes. Blocks.

        The view's address, its length and the offset are multiples of BLOCK. DamagedWeights when the file ends earlier
        than it did when its header was read, or isn't that file any more; UnreadableWeights when a call fails.
        """
        fd = self._open()
        wanted = min(len(view), self.size - offset)
        done = 0
        if self._direct is not None and not self._refused and not (self._io == "auto" and _cached(fd, offset, wanted)):
            done = self._read_direct(self._direct, view, offset, wanted)
        while done < wanted:
            count = self._read(fd, view[done:wanted], offset + done)
            if count == 0:
                raise DamagedWeights(self.path, f"it ended at {offset + done} bytes while it was read")
            done += count
            self._count(0, count)

    def _read_direct(self, fd: int, view: memoryview, offset: int, wanted: int) -> int:
        """Bytes read with O_DIRECT: all, or as many as came before it was refused or stopped within a block."""
        done = 0
        while done < wanted and done % BLOCK == 0:
            try:
                count = os.preadv(fd, [view[done:]], offset + done)
            except OSError as error:
                if error.errno not in _REFUSED:
                    raise UnreadableWeights(self.path, error) from error
                self._refused = True
                break
            if count == 0:
                break
            done += count
            self._count(count, 0)
        return min(done, wanted)

    def _read(self, fd: int, view: memoryview, offset: int) -> int:
        try:
            return os.preadv(fd, [view], offset)
        except OSError as error:
            raise UnreadableWeights(self.path, error) from error

    def _count(self, direct: int, buffered: int) -> None:
        with self._lock:
            self._counters.direct_bytes += direct
            self._counters.buffered_bytes += buffered

    def close(self) -> None:
        """Close its descriptors; nobody may be reading."""
        for fd in (self._direct, self._fd):
            if fd is not None:
                os.close(fd)
        self._direct = self._fd = None


def _cached(fd: int, offset: int, length: int) -> bool:
    return resident_fraction(fd, offset, length) >= _CACHED
