"""Opening paths beneath a directory: the kernel resolves them, and none leads out, whoever changes it meanwhile."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

# <linux/openat2.h>; the call's number is the same on every architecture.
_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_HOW = struct.Struct("QQQ")

_TRIES = 16
"""While somebody renames directories nearby the kernel can't say whether `..` stays beneath, and answers EAGAIN."""

LINKS_MAX = 40
"""Symlinks on the way of one path, as the kernel's own bound."""

ANCESTORS_MAX = 2048
"""Directories above one another: a path has no room for more."""


class NoOpenat2(OSError):
    """The kernel has no openat2: nothing is opened then."""

    def __init__(self) -> None:
        super().__init__(errno.ENOSYS, "a directory as origin needs a kernel with openat2, which is Linux 5.6 or later")


def open_beneath(directory: int, path: str, flags: int, mode: int = 0, *, links: bool = True) -> int:
    """A descriptor of a path below an open directory. links: symlinks are followed as long as they stay beneath it;
    otherwise ELOOP. OSError: EXDEV for a path that leads out, and all that openat() has; NoOpenat2."""
    resolve = _RESOLVE_BENEATH | (_RESOLVE_NO_MAGICLINKS if links else _RESOLVE_NO_SYMLINKS)
    how = _HOW.pack((flags | os.O_CLOEXEC) & 0xFFFFFFFF, mode, resolve)
    name = os.fsencode(path)
    for _ in range(_TRIES):
        fd = _libc.syscall(_SYS_OPENAT2, ctypes.c_int(directory), ctypes.c_char_p(name), how, ctypes.c_size_t(len(how)))
        if fd >= 0:
            return int(fd)
        error = ctypes.get_errno()
        if error not in (errno.EAGAIN, errno.EINTR):
            break
    if error == errno.ENOSYS:
        raise NoOpenat2
    raise OSError(error, os.strerror(error), path)


def open_root(path: str) -> int:
    """A descriptor of the directory itself, by a path that may lead anywhere: the administrator gave it. OSError."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


@contextmanager
def closing(fd: int) -> Iterator[int]:
    """A descriptor that is closed in the end."""
    try:
        yield fd
    finally:
        os.close(fd)


def reopened(fd: int, flags: int) -> int:
    """What an O_PATH descriptor stands for, opened: just this inode, whatever its name leads to by now. OSError."""
    return os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)


def ancestors(directory: int, root: int) -> list[os.stat_result]:
    """The directories above an open one, up to `root`, which is the last. Where it was moved out of that meanwhile
    OSError EXDEV."""
    top = _identity(os.fstat(root))
    found: list[os.stat_result] = []
    here = os.dup(directory)
    try:
        was = _identity(os.fstat(here))
        while was != top:
            above = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = above
            status = os.fstat(here)
            if _identity(status) == was or len(found) >= ANCESTORS_MAX:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            found.append(status)
            was = _identity(status)
        return found
    finally:
        os.close(here)


def follow(root: int, path: str) -> tuple[int, list[os.stat_result]]:
    """What a path leads to that ends in a symlink: an O_PATH descriptor, which the caller closes, and the directories
    that it really lies in, up to `root`. OSError: EXDEV where it leads out, ELOOP, ENOENT for a symlink to nothing."""
    for _ in range(LINKS_MAX):
        head, _, last = path.rstrip("/").rpartition("/")
        if last in ("", ".", ".."):
            fd = open_beneath(root, path or ".", os.O_PATH | os.O_DIRECTORY)
            return fd, _or_close(fd, fd, root)
        with closing(open_beneath(root, head or ".", os.O_PATH | os.O_DIRECTORY)) as parent:
            fd = os.open(last, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            status = os.fstat(fd)
            if not stat.S_ISLNK(status.st_mode):
                if stat.S_ISDIR(status.st_mode):
                    return fd, _or_close(fd, fd, root)
                above = _or_close(fd, parent, root)
                return fd, [os.fstat(parent), *above]
            with closing(fd):
                target = os.readlink("", dir_fd=fd)
        if target.startswith("/"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        path = f"{head}/{target}" if head else target
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _or_close(fd: int, directory: int, root: int) -> list[os.stat_result]:
    try:
        return ancestors(directory, root)
    except OSError:
        os.close(fd)
        raise


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
