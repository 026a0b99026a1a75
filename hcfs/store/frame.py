"""Frames: how every metadata record is wrapped. Format: docs/format.md, "Frame"; the shape follows LevelDB's log
(doc/log_format.md)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

from crc32c import crc32c

HEADER = struct.Struct("<IHHQII")
HEADER_BYTES = 24
assert HEADER.size == HEADER_BYTES
_CHECKED_BYTES = 16
MAX_PAYLOAD = 16 << 20
FIRST_IN_BATCH = 1
MAX_COUNT = 1 << 62
"""Generations, sequence numbers and serials count up from 1: a higher one is damage"""
LAST_COUNT = MAX_COUNT - (1 << 40)
"""From here on nothing is written any more, since what comes behind MAX_COUNT couldn't be read: nobody counts so far,
but an image may say so"""


class FrameType(IntEnum):
    TRANSACTION = 1
    PAGE = 2


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that verified. `end` is the offset just behind it, in the buffer it was read from."""

    type: int
    flags: int
    sequence: int
    payload: memoryview
    end: int
    crc: int


def seed(uuid: UUID, generation: int) -> int:
    """Where the checksums of a region's frames start: of this store and this life of the region only."""
    return crc32c(uuid.bytes + generation.to_bytes(8, "little"))


def padded(length: int) -> int:
    """Bytes that a frame of `length` payload bytes occupies."""
    return (HEADER_BYTES + length + 7) & ~7


def encode(kind: FrameType, flags: int, sequence: int, payload: bytes | bytearray, start: int) -> bytes:
    """The frame's bytes, a multiple of 8. start: what the checksum continues: the region's seed, or within a batch the
    checksum of the frame before."""
    if not 0 < len(payload) <= MAX_PAYLOAD:
        raise ValueError(f"a frame holds 1 to {MAX_PAYLOAD} bytes, not {len(payload)}")
    head = HEADER.pack(len(payload), kind, flags, sequence, 0, 0)[:_CHECKED_BYTES]
    crc = crc32c(payload, crc32c(head, start))
    return (head + struct.pack("<II", crc, 0) + payload).ljust(padded(len(payload)), b"\0")


def peek(buffer: memoryview, offset: int) -> tuple[int, int, int, int] | None:
    """(length, type, flags, sequence) at `offset` if they are plausible, unverified; else None."""
    if offset + HEADER_BYTES > len(buffer):
        return None
    length, kind, flags, sequence, _, _ = HEADER.unpack_from(buffer, offset)
    if not 0 < length <= MAX_PAYLOAD or kind not in (1, 2) or flags > 1 or sequence > MAX_COUNT:
        return None
    return length, kind, flags, sequence


def checksum(encoded: bytes) -> int:
    """The checksum in a frame's bytes."""
    return int(HEADER.unpack_from(encoded)[4])


def decode(buffer: memoryview, offset: int, start: int) -> Frame | None:
    """The frame at `offset`, or None when there is none that verifies within the buffer; `start` as in `encode`."""
    plausible = peek(buffer, offset)
    if plausible is None:
        return None
    length, kind, flags, sequence = plausible
    if offset + HEADER_BYTES + length > len(buffer):
        return None
    payload = buffer[offset + HEADER_BYTES : offset + HEADER_BYTES + length]
    crc = crc32c(payload, crc32c(buffer[offset : offset + _CHECKED_BYTES], start))
    if crc != HEADER.unpack_from(buffer, offset)[4]:
        return None
    return Frame(kind, flags, sequence, payload, offset + padded(length), crc)
