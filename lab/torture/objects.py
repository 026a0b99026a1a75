"""Objects that tell by themselves whether they are whole, and which one they are."""

from __future__ import annotations

import random
import struct
import zlib
from collections import Counter

_HEADER = struct.Struct("<8sIIQQ")
_STAMP = struct.Struct("<QII")
_MAGIC = b"tortured"
HEADER_BYTES = 512
SECTOR = 512


class NotWhole(ValueError):
    """Bytes that are no object's; says whose sectors they are made of."""


def body(number: int, length: int) -> bytes:
    """`length` bytes that no other number gives: each sector says whose it is and which one."""
    filler = random.Random(number).randbytes(SECTOR - _STAMP.size)
    sectors = -(-length // SECTOR)
    return b"".join(_STAMP.pack(number, index, ~index & 0xFFFFFFFF) + filler for index in range(sectors))[:length]


def header(tree: int, number: int, content: bytes | bytearray) -> bytes:
    """What stands before the content: it covers every byte and the length."""
    packed = _HEADER.pack(_MAGIC, tree, zlib.crc32(content), number, len(content))
    return packed.ljust(HEADER_BYTES, b"\0")


def identify(data: bytes) -> tuple[int, int]:
    """(tree, number) of an object; NotWhole unless it is exactly what was written as one."""
    if len(data) < HEADER_BYTES:
        raise NotWhole(f"{len(data)} bytes, shorter than a header")
    magic, tree, checksum, number, length = _HEADER.unpack_from(data)
    content = data[HEADER_BYTES:]
    if magic != _MAGIC or any(data[_HEADER.size : HEADER_BYTES]):
        raise NotWhole(f"{len(data)} bytes without a header: {data[:32].hex()}; {_made_of(content)}")
    if length != len(content) or zlib.crc32(content) != checksum:
        raise NotWhole(f"object {number} of tree {tree}: {len(content)} of {length} bytes; {_made_of(content)}")
    return tree, number


def _made_of(content: bytes) -> str:
    """Which objects' sectors the bytes are, for whoever looks for the reason."""
    owners: Counter[str] = Counter()
    for at in range(0, len(content), SECTOR):
        sector = content[at : at + SECTOR]
        if not any(sector):
            owners["zeros"] += 1
        elif len(sector) < _STAMP.size:
            owners["a stump"] += 1
        else:
            number, index, check = _STAMP.unpack_from(sector)
            known = index == ~check & 0xFFFFFFFF
            owners[f"object {number}" if known else "foreign or overwritten"] += 1
    return "sectors: " + ", ".join(f"{count} of {owner}" for owner, count in owners.most_common(6))
