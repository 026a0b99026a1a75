"""A device in memory, for tests and dry runs."""

from __future__ import annotations

from errno import EBADF, EROFS
from typing import TYPE_CHECKING, Self

from hcfs.device.errors import DeviceError
from hcfs.device.protocol import BLOCK, IoMode, check_range

if TYPE_CHECKING:
    from typing_extensions import Buffer


class MemoryDevice:
    """A device of `size` bytes (rounded down to whole blocks), all zeros, whose `contents` outlive close().

    Copies are made with the GIL held, so calls are atomic towards each other.
    """

    io: IoMode = "memory"

    def __init__(self, size: int, *, name: str = "memory", read_only: bool = False) -> None:
        self.name = name
        self.size = size // BLOCK * BLOCK
        self.read_only = read_only
        self.contents = bytearray(self.size)
        """The medium itself: tests look at it, and damage it, behind the store's back."""
        self._closed = False

    @classmethod
    def holding(cls, contents: Buffer, *, name: str = "memory", read_only: bool = False) -> Self:
        """A device with a copy of `contents`: a golden image, or what a crash left."""
        view = memoryview(contents).cast("B")
        device = cls(len(view), name=name, read_only=read_only)
        device.contents[:] = view[: device.size]
        return device

    def read_into(self, offset: int, buffer: memoryview) -> None:
        length = buffer.nbytes
        self._check("read", offset, length)
        with memoryview(self.contents) as medium:
            buffer.cast("B")[:] = medium[offset : offset + length]

    def write(self, offset: int, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        self._check("write", offset, len(view))
        if self.read_only:
            raise DeviceError(self.name, "write", offset, len(view), os_errno=EROFS)
        with memoryview(self.contents) as medium:
            medium[offset : offset + len(view)] = view

    def flush(self) -> None:
        self._check("flush", 0, 0)

    takes_discard = True

    def discard(self, offset: int, length: int) -> bool:
        """Zeros the range, as loop devices and most drives do."""
        self._check("discard", offset, length)
        if not self.read_only:
            with memoryview(self.contents) as medium:
                medium[offset : offset + length] = bytes(length)
        return not self.read_only

    def zero(self, offset: int, length: int) -> None:
        self.write(offset, bytes(length))

    def close(self) -> None:
        self._closed = True

    def _check(self, operation: str, offset: int, length: int) -> None:
        if self._closed:
            raise DeviceError(self.name, operation, reason="the device is closed", os_errno=EBADF)
        check_range(self, operation, offset, length)
