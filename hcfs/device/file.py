"""Block devices and image files: direct I/O where the medium takes it."""

from __future__ import annotations

import errno
import logging
import mmap
import os
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from hcfs.device import syscalls
from hcfs.device.buffers import BufferPool
from hcfs.device.errors import DeviceError
from hcfs.device.geometry import Geometry
from hcfs.device.protocol import BLOCK, IoMode, check_range
from hcfs.device.sysfs import takes_discard

if TYPE_CHECKING:
    from typing_extensions import Buffer

log = logging.getLogger(__name__)

COPY_CHUNK = 1 << 20
"""Most bytes copied at once to an aligned buffer: the size of the largest FUSE request."""

SPARE_CHUNK = 64 << 10
DISCARD_CHUNK = 2 << 30
"""One uninterruptible ioctl of a whole drive can take minutes."""

AGAIN_LIMIT_S = 30.0
"""How long a transfer that makes no progress (EAGAIN) is tried again."""


class FileDevice:
    """A block device or image file, as open_device() makes it. The BlockDevice protocol says what its methods do.

    In mode "direct" a buffer goes to the medium from where it is, if its address suits the medium; otherwise it is
    copied to an aligned one. In mode "buffered" bytes go through the page cache, and flush() writes that back.

    After a failed flush every later flush fails too.
    """

    def __init__(
        self, fd: int, name: str, shape: Geometry, io: IoMode, pool: BufferPool, *, read_only: bool, claims: ExitStack
    ) -> None:
        """Takes over `fd` and `claims`."""
        self.name = name
        self.geometry = shape
        self.size = shape.size // BLOCK * BLOCK
        self.io: IoMode = io
        self.read_only = read_only
        self._fd = fd
        self._is_block = stat.S_ISBLK(os.fstat(fd).st_mode)
        self._claims = claims
        self._pool = pool
        self._memory_alignment = shape.dio_memory_alignment if io == "direct" else 1
        self._offset_alignment = shape.dio_offset_alignment if io == "direct" else 1
        # For copies when the pool has nothing left: waiting there could be for ever, as the callers hold buffers
        # themselves.
        self._spare = memoryview(mmap.mmap(-1, SPARE_CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        self._spare_lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._flush_failure: int | None = None
        self._closed = False
        # Whoever forgets close() keeps nobody away for longer than the object lives.
        weakref.finalize(self, os.close, fd)
        weakref.finalize(self, claims.close)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        view = buffer.cast("B")
        self._check("read", offset, len(view))
        if self._is_aligned(view):
            self._read(offset, view)
            return
        self._pool.note_copy(len(view))
        with self._aligned_buffer(len(view)) as aligned:
            for start in range(0, len(view), len(aligned)):
                piece = aligned[: min(len(aligned), len(view) - start)]
                self._read(offset + start, piece)
                syscalls.copy_bytes(view[start : start + len(piece)], piece)

    def write(self, offset: int, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        self._check("write", offset, len(view))
        if self.read_only:
            raise DeviceError(self.name, "write", offset, len(view), os_errno=errno.EROFS)
        if self._is_aligned(view):
            self._write(offset, view)
            return
        self._pool.note_copy(len(view))
        with self._aligned_buffer(len(view)) as aligned:
            for start in range(0, len(view), len(aligned)):
                piece = aligned[: min(len(aligned), len(view) - start)]
                syscalls.copy_bytes(piece, view[start : start + len(piece)])
                self._write(offset + start, piece)

    def flush(self) -> None:
        self._check("flush", 0, 0)
        if self.read_only:
            return
        # One at a time: the kernel tells a failed write-back to one caller only, and a second flush beside it would
        # report success for the same lost data.
        with self._flush_lock:
            if self._flush_failure is None:
                try:
                    os.fdatasync(self._fd)
                    return
                except OSError as error:
                    self._flush_failure = error.errno
        raise DeviceError(self.name, "flush", os_errno=self._flush_failure)

    @property
    def takes_discard(self) -> bool:
        if self.read_only:
            return False
        if self._is_block:
            return takes_discard(os.fstat(self._fd).st_rdev)
        try:
            syscalls.punch_hole(self._fd, self.size, BLOCK)  # behind the end, so it changes nothing
        except OSError:
            return False
        return True

    def discard(self, offset: int, length: int) -> bool:
        self._check("discard", offset, length)
        if self.read_only or not length:
            return not self.read_only
        discard = syscalls.block_discard if self._is_block else syscalls.punch_hole
        try:
            for start in range(offset, offset + length, DISCARD_CHUNK):
                discard(self._fd, start, min(DISCARD_CHUNK, offset + length - start))
        except OSError as error:
            log.debug("%s: discard of %d bytes at %d: %s", self.name, length, offset, error.strerror)
            return False
        return True

    def zero(self, offset: int, length: int) -> None:
        self._check("zero", offset, length)
        if self.read_only:
            raise DeviceError(self.name, "zero", offset, length, os_errno=errno.EROFS)
        if self._is_block:
            try:
                # Of a block device this is "write zeroes": done by the drive, and zeros for sure, or refused.
                syscalls.punch_hole(self._fd, offset, length)
                return
            except OSError as error:
                log.debug("%s: zeros are written, since the drive can't make them: %s", self.name, error.strerror)
            self._write_zeros(offset, offset + length)
            return
        # A hole would only give the blocks back to the image's filesystem, as they are: so they are overwritten. What
        # is a hole already holds nothing.
        at, end = offset, offset + length
        while at < end:
            start = syscalls.next_data(self._fd, at)
            if start is None or start >= end:
                return
            start = max(at, start // BLOCK * BLOCK)
            stop = min(end, -(-os.lseek(self._fd, start, os.SEEK_HOLE) // BLOCK) * BLOCK)
            self._write_zeros(start, stop)
            at = stop

    def _write_zeros(self, start: int, end: int) -> None:
        zeros = memoryview(mmap.mmap(-1, min(COPY_CHUNK, end - start), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        for at in range(start, end, len(zeros)):
            self._write(at, zeros[: min(len(zeros), end - at)])

    def clear_tail(self) -> None:
        """Zero what lies between `size` and the exact end, less than a block: it may hold a partition table's copy."""
        tail = self.geometry.size - self.size
        if tail and not self.read_only:
            # Through the page cache: the tail needn't be whole sectors.
            with open(f"/proc/self/fd/{self._fd}", "r+b", buffering=0) as cached:
                os.pwrite(cached.fileno(), bytes(tail), self.size)
                os.fsync(cached.fileno())

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            # The number must not become another file's while a thread is on its way into a system call with it, so it
            # keeps leading to nothing until nobody has this object.
            nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            os.dup2(nothing, self._fd, inheritable=False)
            os.close(nothing)
            self._claims.close()

    def _check(self, operation: str, offset: int, length: int) -> None:
        if self._closed:
            raise DeviceError(self.name, operation, reason="the device is closed", os_errno=errno.EBADF)
        check_range(self, operation, offset, length)

    def _is_aligned(self, view: memoryview) -> bool:
        return self._memory_alignment == 1 or not view or syscalls.address_of(view) % self._memory_alignment == 0

    @contextmanager
    def _aligned_buffer(self, length: int) -> Iterator[memoryview]:
        buffer = self._pool.try_acquire(min(length, COPY_CHUNK, self._pool.budget))
        if buffer is not None:
            yield buffer
        else:
            with self._spare_lock:
                yield self._spare

    def _read(self, offset: int, view: memoryview) -> None:
        self._transfer("read", offset, view, lambda rest, at: os.preadv(self._fd, [rest], at))

    def _write(self, offset: int, view: memoryview) -> None:
        self._transfer("write", offset, view, lambda rest, at: os.pwrite(self._fd, rest, at))

    def _transfer(self, operation: str, offset: int, view: memoryview, call: Callable[[memoryview, int], int]) -> None:
        """Call until the whole view is transferred; DeviceError if that can't be done."""
        done = 0
        give_up_at: float | None = None
        while done < len(view):
            try:
                moved = call(view[done:], offset + done)
            except (BlockingIOError, InterruptedError) as error:
                give_up_at = give_up_at or time.monotonic() + AGAIN_LIMIT_S
                if time.monotonic() > give_up_at:
                    raise DeviceError(self.name, operation, offset, len(view), os_errno=error.errno) from error
                time.sleep(0.001)
                continue
            except OSError as error:
                raise DeviceError(self.name, operation, offset, len(view), os_errno=error.errno) from error
            give_up_at = None
            # What comes next must be aligned again, so a transfer that ended within a sector is repeated from there.
            moved = moved // self._offset_alignment * self._offset_alignment
            if not moved:
                reason = f"it ended after {done} bytes (has the medium shrunk?); restore its full size"
                raise DeviceError(self.name, operation, offset, len(view), reason=reason)
            done += moved
