"""Whether a file's bytes are in the kernel's page cache already, asked without reading them."""

from __future__ import annotations

import ctypes
import mmap
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
_MAP_FAILED = ctypes.c_void_p(-1).value


def resident_fraction(fd: int, offset: int, length: int) -> float:
    """The part of a run of bytes, 0 to 1, that is in the page cache; `offset` is a multiple of the page size.

    1 where the kernel doesn't tell (Linux answers so for a file that the caller neither owns nor may write). Doesn't
    block on I/O.
    """
    if not length:
        return 1.0
    address = _libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, offset)
    if address == _MAP_FAILED:
        return 1.0
    try:
        pages = -(-length // mmap.PAGESIZE)
        answer = ctypes.create_string_buffer(pages)
        if _libc.mincore(address, length, answer):
            return 1.0
        # Only the lowest bit of each byte means anything; it is the only one that Linux sets.
        return 1 - answer.raw.count(0) / pages
    finally:
        _libc.munmap(address, length)


def drop(path: str | os.PathLike[str]) -> float:
    """Ask the kernel to let go of a file's pages; the part of them, 0 to 1, that stayed (what is mapped does)."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        size = os.fstat(fd).st_size
        return resident_fraction(fd, 0, size) if size else 0.0
    finally:
        os.close(fd)
