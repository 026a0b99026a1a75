"""From a path to a device that is claimed, checked, and known to take direct I/O or not."""

from __future__ import annotations

import errno
import fcntl
import logging
import mmap
import os
import stat
from contextlib import ExitStack

from hcfs.device import syscalls
from hcfs.device.buffers import BufferPool
from hcfs.device.claim import open_claimed
from hcfs.device.errors import DeviceNotFound, DeviceReadOnly, DeviceTooSmall, DeviceUnusable, NotADevice
from hcfs.device.file import FileDevice
from hcfs.device.geometry import Geometry, geometry
from hcfs.device.protocol import BLOCK, IoMode

log = logging.getLogger(__name__)


def open_device(path: str, pool: BufferPool, *, read_only: bool = False, exclusive: bool = True) -> FileDevice:
    """Open a block device or image file; nothing is written to it.

    exclusive: claim it for as long as it is open, together with what a loop device stands on; DeviceHeld names who has
    it already. Further errors, all DeviceUnusable: DeviceNotFound, NotADevice, DeviceReadOnly, DeviceTooSmall (less
    than one block). Copies that alignment demands are made in buffers of `pool`.
    """
    flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR)
    with ExitStack() as undo:
        try:
            _check_kind(path)
            fd, claims = open_claimed(path, flags) if exclusive else (os.open(path, flags), ExitStack())
        except OSError as error:
            raise _cannot_open(path, error) from error
        undo.enter_context(claims)
        undo.callback(os.close, fd)
        shape = geometry(fd)
        if shape.size < BLOCK:
            raise DeviceTooSmall(path, shape.size, BLOCK)
        if not read_only and stat.S_ISBLK(os.fstat(fd).st_mode) and syscalls.block_write_protected(fd):
            raise DeviceReadOnly(f"{path} is write-protected; use it read-only or run blockdev --setrw on it")
        device = FileDevice(fd, path, shape, _choose_io(fd, path, shape), pool, read_only=read_only, claims=claims)
        undo.pop_all()
        return device


def _check_kind(path: str) -> None:
    mode = os.stat(path).st_mode
    if not stat.S_ISBLK(mode) and not stat.S_ISREG(mode):
        kind = "directory" if stat.S_ISDIR(mode) else "special file"
        raise NotADevice(f"{path} is a {kind}; give a block device or an image file")


def _cannot_open(path: str, error: OSError) -> DeviceUnusable:
    if error.errno == errno.EROFS:
        return DeviceReadOnly(f"{path} can't be opened for writing: {error.strerror}; use it read-only")
    remedies = {
        errno.ENOENT: "check the path, or make an image with hcfs mkfs --size",
        errno.EACCES: "run as root or as a user who may read and write it",
        errno.EPERM: "run as root or as a user who may read and write it",
    }
    remedy = remedies.get(error.errno or 0, "the kernel's log (dmesg) may say why")
    failure = DeviceNotFound(f"{path} can't be opened: {error.strerror}; {remedy}")
    failure.errno = error.errno or errno.EIO
    return failure


def _choose_io(fd: int, path: str, shape: Geometry) -> IoMode:
    """Turn O_DIRECT on if this medium takes it: the kernel must agree, and a read must come through."""
    reason = "the kernel offers none here" if not shape.direct_io else _turn_on_direct_io(fd)
    if reason is None:
        return "direct"
    log.info("%s: no direct I/O (%s); using the page cache and fdatasync", path, reason)
    return "buffered"


def _turn_on_direct_io(fd: int) -> str | None:
    """None when it works, else the reason; the descriptor is then as it was."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT)
        # Some filesystems take the flag and refuse the I/O.
        os.preadv(fd, [mmap.mmap(-1, BLOCK)], 0)
    except OSError as error:
        if error.errno == errno.EIO:
            return None  # a bad block says nothing about the others
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)
        return error.strerror
    return None
