"""The system calls, ioctls and memory operations that Python has no module for."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import sys
from typing import NamedTuple

_libc = ctypes.CDLL(None, use_errno=True)

# <linux/fs.h>
_BLKROGET = 0x125E
_BLKSSZGET = 0x1268
_BLKPBSZGET = 0x127B
_BLKDISCARD = 0x1277
_BLKGETSIZE64 = 0x80081272
# <linux/loop.h>: struct loop_info64 begins with lo_device, lo_inode, lo_rdevice
_LOOP_GET_STATUS64 = 0x4C05
_LOOP_INFO64_SIZE = 232
# <linux/stat.h>, <fcntl.h>
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_AT_STATX_DONT_SYNC = 0x4000
_STATX_BASIC_STATS = 0x07FF
_STATX_DIOALIGN = 0x2000
_STATX_SIZE = 256
_STATX_DIO_FIELDS = 0x98
# <linux/falloc.h>
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01


def block_size_bytes(fd: int) -> int:
    """Bytes of a block device."""
    return int(struct.unpack("Q", fcntl.ioctl(fd, _BLKGETSIZE64, bytes(8)))[0])


def block_sector_sizes(fd: int) -> tuple[int, int]:
    """Bytes of a logical and of a physical sector."""
    logical, physical = (
        struct.unpack("I", fcntl.ioctl(fd, request, bytes(4)))[0] for request in (_BLKSSZGET, _BLKPBSZGET)
    )
    return logical, physical


def block_write_protected(fd: int) -> bool:
    """Whether the kernel takes no writes for a block device."""
    return any(fcntl.ioctl(fd, _BLKROGET, bytes(4)))


def block_discard(fd: int, offset: int, length: int) -> None:
    """BLKDISCARD of a range in bytes; OSError, EOPNOTSUPP where the device has none."""
    fcntl.ioctl(fd, _BLKDISCARD, struct.pack("QQ", offset, length))


def punch_hole(fd: int, offset: int, length: int) -> None:
    """Free a range of a file, which reads as zeros afterwards; OSError, EOPNOTSUPP where the filesystem can't."""
    if _libc.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(length)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def next_data(fd: int, offset: int) -> int | None:
    """Where the first data at or behind an offset of a file begins; None when only a hole follows. On a filesystem that
    knows no holes that is the offset itself."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


def loop_backing(fd: int) -> tuple[int, int, int]:
    """(st_dev, st_ino, st_rdev) of what an open loop device stands on; OSError (ENXIO) for one without."""
    status = fcntl.ioctl(fd, _LOOP_GET_STATUS64, bytes(_LOOP_INFO64_SIZE))
    device, inode, rdevice = struct.unpack_from("QQQ", status)
    return device, inode, rdevice


def direct_io_alignment(fd: int) -> tuple[int, int] | None:
    """Alignment that O_DIRECT asks of addresses and of offsets, bytes; (0, 0) where there is no direct I/O.

    None where kernel or filesystem don't say (STATX_DIOALIGN came with Linux 6.1, for some filesystems later).
    """
    answer = _statx(fd, b"", _AT_EMPTY_PATH, _STATX_DIOALIGN)
    if answer is None or not int.from_bytes(answer[:4], sys.byteorder) & _STATX_DIOALIGN:
        return None
    memory, offset = struct.unpack_from("II", answer, _STATX_DIO_FIELDS)
    return memory, offset


class CachedStatus(NamedTuple):
    """The fields of os.stat_result that tell what a file is."""

    st_mode: int
    st_ino: int
    st_dev: int
    st_rdev: int


def stat_without_sync(path: str) -> CachedStatus | os.stat_result:
    """As stat(), content with what the kernel knows already: it doesn't ask a server, which might never answer."""
    answer = _statx(_AT_FDCWD, os.fsencode(path), _AT_STATX_DONT_SYNC, _STATX_BASIC_STATS)
    if answer is None:
        return os.stat(path)
    (mode,) = struct.unpack_from("H", answer, 0x1C)
    (inode,) = struct.unpack_from("Q", answer, 0x20)
    rdev_major, rdev_minor, dev_major, dev_minor = struct.unpack_from("IIII", answer, 0x80)
    return CachedStatus(mode, inode, os.makedev(dev_major, dev_minor), os.makedev(rdev_major, rdev_minor))


def _statx(fd: int, path: bytes, flags: int, mask: int) -> bytes | None:
    """A struct statx; None where the call fails or the C library is older than it."""
    answer = ctypes.create_string_buffer(_STATX_SIZE)
    try:
        failed = _libc.statx(fd, path, flags, mask, answer)
    except AttributeError:
        return None
    return None if failed else answer.raw


class _PyBuffer(ctypes.Structure):
    """Py_buffer of CPython's C interface."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def address_of(view: memoryview) -> int:
    """Address of a contiguous view's first byte: ctypes has a way for writable buffers only, so the C interface is
    asked."""
    buffer = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
    address = buffer.buf or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return address


def copy_bytes(destination: memoryview, source: memoryview) -> None:
    """Copy between contiguous views of equal length without the GIL, which slice assignment would hold."""
    if destination.readonly or destination.nbytes != source.nbytes:
        raise ValueError(f"{source.nbytes} bytes can't be copied to {destination.nbytes}, or these are read-only")
    ctypes.memmove(address_of(destination), address_of(source), source.nbytes)
