"""Damage to the medium under a mount: bytes flipped where a known content lies."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

_LENGTH = 64
"""Bytes by which a place in a random content is recognised."""


def locate(medium: Path, content: bytes, position: int) -> int:
    """Offset on the image or device of the byte at `position` of a random content, which must lie there just once."""
    start = max(0, min(position, len(content) - _LENGTH))
    needle = content[start : start + _LENGTH]
    fd = os.open(medium, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(fd, os.lseek(fd, 0, os.SEEK_END), mmap.MAP_SHARED, mmap.PROT_READ) as memory:
            found = memory.find(needle)
            assert found >= 0, f"the content isn't on {medium}"
            assert memory.find(needle, found + 1) < 0, f"the content is on {medium} more than once"
            return found + position - start
    finally:
        os.close(fd)


def flip(medium: Path, content: bytes, position: int) -> None:
    """Flip all bits of one byte of the content, on the medium alone: what the kernel has cached of the mount stays.

    A flip and never a fixed byte, which would be the right one once in 256 times; and it is read back.
    """
    offset = locate(medium, content, position)
    fd = os.open(medium, os.O_RDWR | os.O_SYNC)
    try:
        before = os.pread(fd, 1, offset)
        assert before == content[position : position + 1]
        os.pwrite(fd, bytes([before[0] ^ 0xFF]), offset)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(fd, 1, offset) != before
    finally:
        os.close(fd)
