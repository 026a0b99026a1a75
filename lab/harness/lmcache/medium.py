"""One bit of a stored object, flipped on the image or device itself."""

from __future__ import annotations

import os
import re
from pathlib import Path

BLOCK = 4096
_EXTENT = re.compile(r"(\d+)\+(\d+)@(\d+)")


def locate(path: Path, at: int) -> int:
    """Where byte `at` of an object on the mount lies on the medium, from `user.hcfs.extents` (LOGICAL+COUNT@BLOCK)."""
    block, within = divmod(at, BLOCK)
    shown = os.getxattr(path, "user.hcfs.extents").decode()
    extents = [tuple(map(int, extent)) for extent in _EXTENT.findall(shown)]
    assert len(extents) == shown.count(" ") + 1, shown
    (place,) = (first + block - logical for logical, count, first in extents if logical <= block < logical + count)
    return place * BLOCK + within


def flip(medium: Path, offset: int, expected: int) -> None:
    """Flip one bit of the byte at `offset`, which must be `expected`: damage that lands elsewhere proves nothing."""
    fd = os.open(medium, os.O_RDWR)
    try:
        os.posix_fadvise(
            fd, 0, 0, os.POSIX_FADV_DONTNEED
        )  # a block device's cache may be older than the daemon's writes
        byte = os.pread(fd, 1, offset)[0]
        assert byte == expected, f"byte {offset} of {medium} is {byte}, the object's is {expected}"
        os.pwrite(fd, bytes([byte ^ 1 << offset % 8]), offset)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(fd, 1, offset)[0] != expected
    finally:
        os.close(fd)
