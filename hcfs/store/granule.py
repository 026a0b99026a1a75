"""Granule checksums: CRC32C over identity and bytes. Format: docs/format.md, "Data".

Combining checksums without the data uses the linearity of CRCs over GF(2), as zlib's crc32_combine does
(M. Adler, zlib, crc32.c)."""

from __future__ import annotations

import struct
from functools import lru_cache
from uuid import UUID

from crc32c import crc32c

_IDENTITY = struct.Struct("<QQ")
_POLYNOMIAL = 0x82F63B78  # Castagnoli, bit-reversed: RFC 3720, appendix B.4


class Checksummer:
    """Checksums of the granules of one store."""

    def __init__(self, uuid: UUID, granule_bytes: int) -> None:
        self.granule_bytes = granule_bytes
        self._uuid_crc = crc32c(uuid.bytes)

    def seed(self, oid: int, granule: int) -> int:
        """Where the checksum of a granule starts: its identity."""
        return crc32c(_IDENTITY.pack(oid, granule), self._uuid_crc)

    def checksum(self, oid: int, granule: int, data: bytes | memoryview) -> int:
        """The checksum of a whole granule."""
        return crc32c(data, self.seed(oid, granule))

    def first_bad(self, oid: int, first: int, data: memoryview, checksums: bytes) -> int | None:
        """The first granule whose bytes don't have their checksum, None when all have. data: granules from `first` on,
        all whole but perhaps the object's last; checksums: theirs, u32 little-endian each."""
        granule_bytes, at = self.granule_bytes, 0
        for granule in range(first, first - (-len(data) // granule_bytes)):
            expected = checksums[(granule - first) * 4 : (granule - first + 1) * 4]
            if self.checksum(oid, granule, data[at : at + granule_bytes]).to_bytes(4, "little") != expected:
                return granule
            at += granule_bytes
        return None

    def lengths(self, size: int) -> list[int]:
        """Bytes in each granule of an object of `size` bytes."""
        whole, rest = divmod(size, self.granule_bytes)
        return [self.granule_bytes] * whole + ([rest] if rest else [])

    def plain(self, oid: int, size: int, table: tuple[int, ...]) -> int:
        """The plain CRC32C of the object's bytes, from the checksums of its granules."""
        total = 0
        for granule, (length, checksum) in enumerate(zip(self.lengths(size), table, strict=True)):
            # crc(identity + data) = shift(crc(identity), len(data)) ^ crc(data), with crc(data) started from nothing.
            data = checksum ^ shift(self.seed(oid, granule), length)
            total = shift(total, length) ^ data
        return total


def shift(crc: int, length: int) -> int:
    """What `crc` contributes after `length` further bytes: multiplication by x^(8 length) modulo the polynomial."""
    return _apply(_shift_matrix(length), crc)


def _apply(matrix: tuple[int, ...], vector: int) -> int:
    result = 0
    while vector:
        low = vector & -vector
        result ^= matrix[low.bit_length() - 1]
        vector ^= low
    return result


@lru_cache(maxsize=64)
def _shift_matrix(length: int) -> tuple[int, ...]:
    identity = tuple(1 << bit for bit in range(32))
    result = identity
    for power in range(length.bit_length()):
        if length >> power & 1:
            step = _power_matrix(power)
            result = tuple(_apply(step, column) for column in result)
    return result


@lru_cache(maxsize=64)
def _power_matrix(power: int) -> tuple[int, ...]:
    """Shift by 2^power bytes."""
    if power == 0:
        columns = []
        for bit in range(32):
            value = 1 << bit
            for _ in range(8):
                value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
            columns.append(value)
        return tuple(columns)
    half = _power_matrix(power - 1)
    return tuple(_apply(half, column) for column in half)
