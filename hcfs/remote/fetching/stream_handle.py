"""A file of an origin that was opened while it was on its way."""

from __future__ import annotations

import errno

from hcfs.filesystem.calls import Awaiting, Blocking, CallError
from hcfs.remote.fetching.streaming import PAGE, Stream


class StreamHandle:
    """A Handle. What it reads is of one attempt at the file."""

    __slots__ = ("_direct", "_stream")

    def __init__(self, stream: Stream, *, direct: bool) -> None:
        """direct: opened with O_DIRECT, so that none of its READs is the kernel's read-ahead."""
        self._stream = stream
        self._direct = direct

    def read(self, offset: int, length: int) -> Blocking[memoryview | bytes] | Awaiting:
        """Awaiting what hasn't come yet; EAGAIN for read-ahead that would be one wait too many."""
        awaiting = self._stream.awaiting(offset, length, ahead=length > PAGE and not self._direct)
        return awaiting or Blocking(lambda: self._stream.read(offset, length))

    def write(self, offset: int, data: bytes | memoryview, *, drops_privileges: bool) -> int:
        """EBADF: it is open for reading only."""
        raise CallError(errno.EBADF)

    def flush(self) -> None:
        """Nothing was written through it."""

    def sync(self) -> None:
        """The same."""

    def release(self) -> None:
        self._stream.release()

    def path(self) -> bytes:
        return self._stream.remote.listed.key.encode(errors="surrogateescape")
