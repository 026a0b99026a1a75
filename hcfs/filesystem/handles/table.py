"""Open files and directories, by the numbers that the kernel knows them by."""

from __future__ import annotations

import errno
import itertools
from typing import Protocol

from hcfs.filesystem.calls import Awaiting, Blocking, CallError
from hcfs.filesystem.handles.directory_handle import DirectoryHandle

Content = memoryview | bytes


class Handle(Protocol):
    """One open file or directory, which serves its own calls."""

    def read(self, offset: int, length: int) -> Content | Blocking[Content] | Awaiting:
        """Up to `length` verified bytes; fewer at the end of the file only. EIO for what can't be verified. Awaiting
        where an origin still has them; EAGAIN for read-ahead that would be one wait too many."""

    def write(self, offset: int, data: bytes | memoryview, *, drops_privileges: bool) -> int:
        """All of `data`, or an error. Blocks. drops_privileges: the writer may not keep setuid and setgid."""

    def flush(self) -> Blocking[None] | None:
        """A descriptor is closed, perhaps one of several of this handle: make what was written safe to publish, so that
        close() can fail and whatever publishes next can't."""

    def sync(self) -> None:
        """Bring what was written through it to the device. Blocks."""

    def release(self) -> None:
        """Its last descriptor is closed. Never waits."""

    def path(self) -> bytes:
        """Where the file is, for the log."""


class Handles:
    """The table of open handles. Thread-safe by the interpreter's own dictionary operations."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: dict[int, Handle] = {}

    def add(self, handle: Handle) -> int:
        """Number a handle; numbers aren't used again."""
        number = next(self._numbers)
        self._open[number] = handle
        return number

    def get(self, number: int) -> Handle:
        """The handle; EBADF when it isn't open."""
        try:
            return self._open[number]
        except KeyError:
            raise CallError(errno.EBADF) from None

    def directory(self, number: int) -> DirectoryHandle:
        """The directory's handle; EBADF when it isn't one."""
        handle = self.get(number)
        if not isinstance(handle, DirectoryHandle):
            raise CallError(errno.EBADF)
        return handle

    def path(self, number: int) -> bytes:
        """Where an open file or directory is, for the log; its number when it isn't open."""
        handle = self._open.get(number)
        return b"handle %d" % number if handle is None else handle.path()

    def release(self, number: int) -> None:
        """Forget the handle, and release it; nothing when it isn't open."""
        handle = self._open.pop(number, None)
        if handle is not None:
            handle.release()

    def __len__(self) -> int:
        return len(self._open)
