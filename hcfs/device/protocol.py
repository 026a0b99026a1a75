"""The one way to a medium: what the store needs of a device, and nothing else.

Anything with these members is a device: the block device or image of file.py, the memory of memory.py, or a wrapper
that records, delays, fails or reorders the calls of another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from hcfs.device.errors import DeviceError

if TYPE_CHECKING:
    from typing_extensions import Buffer

BLOCK = 4096
"""Unit of offsets and lengths, bytes: a multiple of every sector size in use, so direct I/O is always aligned on the
medium."""

IoMode = Literal["direct", "buffered", "memory"]


@runtime_checkable
class BlockDevice(Protocol):
    """A fixed number of bytes that can be read, written, flushed and discarded.

    Every method blocks, is called from any thread, several at once, and gives up the GIL while it waits for the medium.
    Offsets and lengths are multiples of BLOCK (ValueError otherwise: a bug of the caller); a range that isn't inside
    the device is a DeviceError. What calls that overlap in time and in range leave is undefined: the store never makes
    any.
    """

    @property
    def name(self) -> str:
        """Path as the user gave it, for messages."""

    @property
    def size(self) -> int:
        """Bytes, rounded down to a multiple of BLOCK."""

    @property
    def io(self) -> IoMode:
        """How bytes travel: past the page cache, through it, or not at all."""

    @property
    def read_only(self) -> bool:
        """Whether write is refused (DeviceError, EROFS in `os_errno`), and zero; flush and discard then do nothing."""

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill the whole of `buffer` (contiguous, writable) from `offset`; DeviceError, with undefined content, if that
        can't be done."""

    def write(self, offset: int, data: Buffer) -> None:
        """Write all of `data` (contiguous, at any address) at `offset`; after a DeviceError the range holds old, new or
        torn blocks."""

    def flush(self) -> None:
        """Return when everything written before the call is on the medium, its volatile cache included.

        A DeviceError means that no write since the last good flush can be trusted. It is never tried again here: the
        kernel forgets the failed pages, and a second fsync would report success.
        """

    @property
    def takes_discard(self) -> bool:
        """Whether the medium says that it takes discards at all."""

    def discard(self, offset: int, length: int) -> bool:
        """Tell the medium that a range holds nothing of value; its content is undefined afterwards. Best effort: never
        an error. Whether the medium took it."""

    def zero(self, offset: int, length: int) -> None:
        """Make a range read as zeros, so that what it held can't be read back; durable after a flush. Errors, and what
        they leave, as for `write`."""

    def close(self) -> None:
        """Give the device back, without flushing. Idempotent; every other call afterwards is a DeviceError."""


def check_range(device: BlockDevice, operation: str, offset: int, length: int) -> None:
    """ValueError for an unaligned range, DeviceError for one beyond the device."""
    if offset % BLOCK or length % BLOCK:
        raise ValueError(f"{operation} of {length} bytes at {offset}: not multiples of {BLOCK}")
    if offset < 0 or offset + length > device.size:
        reason = f"that is beyond its end at {device.size} (has it shrunk?)"
        raise DeviceError(device.name, operation, offset, length, reason=reason)
