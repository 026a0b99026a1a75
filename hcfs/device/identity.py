"""What a path or descriptor really is, so that two names of one device or file are seen as one."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from hcfs.device import syscalls


class Identity(NamedTuple):
    """Equal for two names of the same block device (by number, whatever the node) or of the same regular file."""

    is_block: bool
    device: int
    """A block device's own number (st_rdev); for a file that of its filesystem (st_dev)."""
    inode: int
    """0 for a block device."""


def identify(path: str) -> Identity | None:
    """None for anything else than a block device or regular file, and where nothing can be reached."""
    try:
        return _of(os.stat(path))
    except OSError:
        return None


def identify_descriptor(fd: int) -> Identity | None:
    """The same for an open descriptor."""
    return _of(os.fstat(fd))


def identify_open_file(link: str) -> Identity | None:
    """The same for a /proc/PID/fd/N, without asking a network or FUSE filesystem, which might never answer."""
    try:
        return _of(syscalls.stat_without_sync(link))
    except OSError:
        return None


def _of(status: os.stat_result | syscalls.CachedStatus) -> Identity | None:
    if stat.S_ISBLK(status.st_mode):
        return Identity(True, status.st_rdev, 0)
    if stat.S_ISREG(status.st_mode):
        return Identity(False, status.st_dev, status.st_ino)
    return None
