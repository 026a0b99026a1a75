"""What the torture tool's processes share: reading in every way, and knowing a dead mount."""

from __future__ import annotations

import errno
import mmap
import os
import random
import tempfile
from pathlib import Path

from lab.torture.objects import identify

_GONE = (errno.ENOTCONN, errno.ECONNABORTED, errno.ENOENT, errno.ENOTDIR)
WAYS = ["read", "pieces", "direct", "mmap", "sendfile", "copy"]


class Refused(Exception):
    """A call failed as it may here: nothing has changed."""


def gone(directory: Path) -> bool:
    """Whether the mount isn't there any more, or its daemon has died: `directory` is in it."""
    try:
        os.statvfs(directory)
        return not os.path.isdir(directory)
    except OSError as error:
        return error.errno in _GONE


def read_fd(fd: int, chance: random.Random, way: str | None = None) -> bytes:
    """The whole content, by one of the ways in which clients read."""
    size = os.fstat(fd).st_size
    way = chance.choice(WAYS) if way is None else way
    if way == "mmap":
        if not size:
            return b""
        with mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
            return mapping[:]
    if way == "pieces":
        starts = list(range(0, size, 70_000))
        chance.shuffle(starts)
        pieces = {start: _piece(fd, start, min(70_000, size - start)) for start in starts}
        return b"".join(pieces[start] for start in sorted(pieces))
    if way in ("sendfile", "copy"):
        return _through_a_file(fd, size, way)
    if way == "direct":
        step = 1 << 20
        with mmap.mmap(-1, step) as buffer:
            parts = []
            at = 0
            while count := os.preadv(fd, [buffer], at):
                parts.append(buffer[:count])
                at += count
            return b"".join(parts)
    parts = []
    at = 0
    while part := os.pread(fd, 1 << 20, at):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _piece(fd: int, start: int, length: int) -> bytes:
    """That many bytes, as far as there are any: one call may end before the first page that can't be read, and only the
    next one says so."""
    parts = []
    while length and (part := os.pread(fd, length, start)):
        parts.append(part)
        start, length = start + len(part), length - len(part)
    return b"".join(parts)


def read_file(path: Path, chance: random.Random) -> tuple[int, int]:
    """(tree, number) of the object at a path. NotWhole, OSError."""
    way = chance.choice(WAYS)
    fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if way == "direct" else 0))
    try:
        return identify(read_fd(fd, chance, way))
    finally:
        os.close(fd)


def _through_a_file(fd: int, size: int, way: str) -> bytes:
    with tempfile.TemporaryFile() as target:
        at = 0
        while at < size:
            if way == "sendfile":
                count = os.sendfile(target.fileno(), fd, at, size - at)
            else:
                try:
                    count = os.copy_file_range(fd, target.fileno(), size - at, at)
                except OSError as error:
                    if error.errno not in (errno.EXDEV, errno.EOPNOTSUPP):
                        raise
                    way = "sendfile"
                    continue
            if not count:
                break
            at += count
        return os.pread(target.fileno(), size, 0)
