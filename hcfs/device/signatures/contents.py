"""What a file or device holds that carries no mark of a filesystem or volume: a kind of file, or just data."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from errno import EIO

from hcfs.device import syscalls
from hcfs.device.errors import DeviceError, DeviceNotFound
from hcfs.device.signatures.medium import Medium
from hcfs.device.signatures.signature import Signature

EDGE = 1 << 20
"""Bytes at each end of a block device that are looked at: all of it would take hours."""

_PIECE = 1 << 20
_ZEROS = bytes(_PIECE)

_MAGICS = (
    # Kind, place, bytes. Compressed and nested formats are told by their outer one.
    ("SQLite database", 0, b"SQLite format 3\0"),
    ("gzip file", 0, b"\x1f\x8b\x08"),
    ("zstd file", 0, b"\x28\xb5\x2f\xfd"),
    ("xz file", 0, b"\xfd7zXZ\0"),
    ("bzip2 file", 0, b"BZh"),
    ("lz4 file", 0, b"\x04\x22\x4d\x18"),
    ("7-Zip archive", 0, b"7z\xbc\xaf\x27\x1c"),
    ("tar archive", 257, b"ustar"),
    ("GGUF model", 0, b"GGUF"),
    ("NumPy array", 0, b"\x93NUMPY"),
    ("HDF5 file", 0, b"\x89HDF\r\n\x1a\n"),
    ("Parquet file", 0, b"PAR1"),
    ("Arrow file", 0, b"ARROW1\0\0"),
    ("ELF program or library", 0, b"\x7fELF"),
    ("core dump or program of Windows", 0, b"MZ"),
    ("PDF document", 0, b"%PDF-"),
    ("PNG image", 0, b"\x89PNG\r\n\x1a\n"),
    ("JPEG image", 0, b"\xff\xd8\xff"),
    ("qcow2 disk image", 0, b"QFI\xfb"),
    ("VMDK disk image", 0, b"KDMV"),
    ("VHDX disk image", 0, b"vhdxfile"),
    ("git pack", 0, b"PACK"),
    ("script", 0, b"#!"),
)

_TORCH = "PyTorch checkpoint (zip)"
_HEADER_MAX = 100 << 20
"""Bytes of a safetensors header, by its library."""


def contents(path: str, advance: Callable[[int, int], object] | None = None) -> Signature | None:
    """What a regular file or block device holds, by the kind of its first bytes, else `data` at the first byte that
    isn't zero; None when all is zeros. Of a block device both ends alone are looked at, of a file everything but its
    holes. Blocks for as long as reading takes. advance: called with bytes done and in all.

    DeviceNotFound if it can't be opened, DeviceError if it can't be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise DeviceNotFound(f"{path} can't be read: {error.strerror}; check the path and the permissions") from error
    try:
        size = os.lseek(fd, 0, os.SEEK_END)

        def read(offset: int, length: int) -> bytes:
            try:
                return os.pread(fd, length, offset).ljust(length, b"\0")
            except OSError as error:
                raise DeviceError(path, "read", offset, length, os_errno=error.errno or EIO) from error

        kind = _kind(Medium(size, read))
        if kind is not None:
            return kind
        ranges = _ends(size) if stat.S_ISBLK(os.fstat(fd).st_mode) else _data(fd, size)
        for offset, length in ranges:
            piece = read(offset, length)
            if piece != _ZEROS[:length]:
                return Signature(offset + length - len(piece.lstrip(b"\0")), "data")
            # Gigabytes of zeros are nothing that the page cache should keep.
            os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)
            if advance is not None:
                advance(offset + length, size)
        return None
    finally:
        os.close(fd)


def _ends(size: int) -> Iterator[tuple[int, int]]:
    first = min(EDGE, size)
    yield 0, first
    last = max(first, size - EDGE)
    if last < size:
        yield last, size - last


def _data(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Pieces of what isn't a hole."""
    at = 0
    while at < size:
        start = syscalls.next_data(fd, at)
        if start is None or start >= size:
            return
        end = min(size, os.lseek(fd, start, os.SEEK_HOLE))
        for offset in range(start, end, _PIECE):
            yield offset, min(_PIECE, end - offset)
        at = end


def _kind(medium: Medium) -> Signature | None:
    for kind, offset, magic in _MAGICS:
        if medium.has(magic, offset):
            return Signature(offset, kind)
    if medium.has(b"PK\x03\x04", 0):
        # torch.save puts NAME/data.pkl first.
        return Signature(0, _TORCH if medium.at(30, medium.number(26, 2)).endswith(b"/data.pkl") else "zip archive")
    if medium.at(0, 1) == b"\x80" and medium.at(1, 1) in (b"\2", b"\3", b"\4", b"\5"):
        return Signature(0, "pickle (a PyTorch checkpoint, perhaps)")
    return Signature(0, "safetensors file") if _is_safetensors(medium) else None


def _is_safetensors(medium: Medium) -> bool:
    length = medium.number(0, 8)
    if not 2 <= length <= min(_HEADER_MAX, medium.size - 8) or medium.at(8, 1) != b"{":
        return False
    start = medium.at(8, min(length, 4096))
    try:
        return isinstance(json.loads(start), dict)
    except ValueError:
        # Longer than what was read: what it begins with must do.
        return length > len(start) and start[:64].lstrip(b"{ ").startswith(b'"')
