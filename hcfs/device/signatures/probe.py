"""Looking for every known signature."""

from __future__ import annotations

import os
from errno import EIO

from hcfs.device.errors import DeviceError, DeviceNotFound
from hcfs.device.signatures.magics import find_magics
from hcfs.device.signatures.medium import Medium
from hcfs.device.signatures.signature import Signature
from hcfs.device.signatures.structures import FINDERS
from hcfs.device.signatures.wipefs import ask_wipefs


def probe(path: str) -> list[Signature]:
    """The signatures on a block device or file, by offset: those of hcfs's table, and kinds that only wipefs knows.

    DeviceNotFound if it can't be opened, DeviceError if it can't be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise DeviceNotFound(f"{path} can't be read: {error.strerror}; check the path and the permissions") from error
    try:
        found = scan(Medium(os.lseek(fd, 0, os.SEEK_END), lambda offset, length: _read(fd, path, offset, length)))
    finally:
        os.close(fd)
    kinds = {signature.kind for signature in found}
    return _sorted(found + [other for other in ask_wipefs(path) if other.kind not in kinds])


def scan(medium: Medium) -> list[Signature]:
    """The signatures of hcfs's own table, by offset."""
    return _sorted([*find_magics(medium), *(found for finder in FINDERS for found in finder(medium))])


def _sorted(signatures: list[Signature]) -> list[Signature]:
    return sorted(set(signatures), key=lambda signature: (signature.offset, signature.kind))


def _read(fd: int, path: str, offset: int, length: int) -> bytes:
    try:
        data = os.pread(fd, length, offset)
    except OSError as error:
        raise DeviceError(path, "read", offset, length, os_errno=error.errno or EIO) from error
    return data.ljust(length, b"\0")
