"""Extents: runs of blocks that hold an object's bytes. Format: docs/format.md, "Extent"."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_EXTENT = struct.Struct("<IIQ")
EXTENT_BYTES = 16
assert _EXTENT.size == EXTENT_BYTES
MAX_LOGICAL = 1 << 32


@dataclass(frozen=True, slots=True)
class Extent:
    """`count` blocks of an object from its block `logical` on, on the device from block `block` on."""

    logical: int
    block: int
    count: int


def encode_extents(extents: Iterable[Extent]) -> bytes:
    return b"".join(_EXTENT.pack(e.logical, e.count, e.block) for e in extents)


def decode_extents(data: bytes | memoryview) -> tuple[Extent, ...]:
    return tuple(Extent(logical, block, count) for logical, count, block in _EXTENT.iter_unpack(data))


def blocks_of(extents: Iterable[Extent]) -> int:
    """How many blocks they occupy."""
    return sum(e.count for e in extents)


def pieces(extents: tuple[Extent, ...], first: int, end: int) -> Iterator[Extent]:
    """What covers the object's blocks [first, end), in order; holes come with block -1."""
    at = first
    for extent in extents:
        if extent.logical + extent.count <= at:
            continue
        if extent.logical >= end:
            break
        if extent.logical > at:
            yield Extent(at, -1, extent.logical - at)
            at = extent.logical
        skip = at - extent.logical
        count = min(extent.count - skip, end - at)
        yield Extent(at, extent.block + skip, count)
        at += count
    if at < end:
        yield Extent(at, -1, end - at)
