"""The header of a metadata region, which stands in the region's first and last block. Format: docs/format.md, "Region
header"."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from crc32c import crc32c

from hcfs.device import BlockDevice, DeviceError
from hcfs.store import frame as frames
from hcfs.store.superblock import BLOCK, Superblock

MAGIC = b"HCFSREGN"
_FIELDS = struct.Struct("<8s16sQQQQQQQ")
_CRC = struct.Struct("<I")
assert _FIELDS.size == 80, "docs/format.md gives the fields 80 bytes"
_SECTOR = 512
"""What a crash can't tear: the fields and their checksum lie in the first one, so a header that doesn't verify is
damaged, and not a checkpoint's that was interrupted"""


@dataclass(frozen=True, slots=True)
class RegionHeader:
    generation: int
    checkpoint_seq: int
    checkpoint_bytes: int
    log_block: int
    pages: int
    next_serial: int
    written_ns: int

    def encode(self, superblock: Superblock) -> bytes:
        """The header's block, 4,096 bytes."""
        fields = _FIELDS.pack(
            *(
                MAGIC,
                superblock.uuid.bytes,
                self.generation,
                self.checkpoint_seq,
                self.checkpoint_bytes,
                self.log_block,
            ),
            *(self.pages, self.next_serial, self.written_ns),
        )
        body = fields.ljust(_SECTOR - _CRC.size, b"\0")
        return (body + _CRC.pack(crc32c(body))).ljust(BLOCK, b"\0")


def decode_header(block: bytes | memoryview, superblock: Superblock) -> RegionHeader | None:
    """The header in a block, or None when it doesn't verify or belongs to another store."""
    body = block[: _SECTOR - _CRC.size]
    if bytes(body[: len(MAGIC)]) != MAGIC or crc32c(body) != _CRC.unpack_from(block, len(body))[0]:
        return None
    _, uuid, *rest = _FIELDS.unpack_from(block)
    header = RegionHeader(*rest)
    checkpoint_blocks = -(-header.checkpoint_bytes // BLOCK)
    if (
        uuid != superblock.uuid.bytes
        or header.log_block != 1 + checkpoint_blocks
        or header.log_block > superblock.header_copy
        or max(header.generation, header.checkpoint_seq, header.next_serial) > frames.MAX_COUNT
    ):
        return None
    return header


@dataclass(frozen=True, slots=True)
class HeaderPair:
    """What was found in a region's first and last block."""

    number: int
    """Of the region"""
    header: RegionHeader | None
    """The one in force: of two valid ones the one of the higher generation"""
    problems: tuple[str, ...] = ()
    """Sentences; one where there is no header. A copy that is merely older is none: a crash leaves it"""
    unreadable: bool = False
    """The device couldn't read the first, which may pass, and it may say something newer"""
    amiss: tuple[int, ...] = ()
    """Blocks of the device that should hold the header in force and don't"""


def read_headers(device: BlockDevice, superblock: Superblock, number: int) -> HeaderPair:
    """Read both headers of a region. Blocks."""
    start = superblock.regions[number]
    places = (start, start + superblock.header_copy)
    first, second = (_read(device, superblock, block) for block in places)
    valid = [header for header in (first, second) if isinstance(header, RegionHeader)]
    unreadable = isinstance(first, DeviceError)
    if not valid:
        failures = [str(header) for header in (first, second) if isinstance(header, DeviceError)]
        reason = failures[0] if failures else f"metadata region {number} has no valid header"
        return HeaderPair(number, None, (reason,), bool(failures))
    header = max(valid, key=lambda each: each.generation)
    problems = []
    if first != header:
        # The copy is written only when the header is durable, so it is never the newer one by a crash.
        problems.append(f"the header of metadata region {number} {_wrong(first)}: its copy is used")
    if second != header and not (isinstance(second, RegionHeader) and second.generation < header.generation):
        problems.append(f"the copy of the header of metadata region {number} {_wrong(second)}")
    amiss = tuple(block for block, each in zip(places, (first, second), strict=True) if each != header)
    return HeaderPair(number, header, tuple(problems), unreadable, amiss)


def _wrong(found: RegionHeader | DeviceError | None) -> str:
    if isinstance(found, DeviceError):
        return f"can't be read ({found})"
    return "is damaged" if found is None else "isn't the last one that was written"


def _read(device: BlockDevice, superblock: Superblock, block: int) -> RegionHeader | DeviceError | None:
    buffer = bytearray(BLOCK)
    try:
        device.read_into(block * BLOCK, memoryview(buffer))
    except DeviceError as error:
        return error
    return decode_header(bytes(buffer), superblock)


def write_headers(device: BlockDevice, superblock: Superblock, number: int, header: RegionHeader) -> None:
    """Make a header a region's: the first block, then the last one, with a flush after each. Blocks; raises
    DeviceError.

    The region is current when the first is durable. The copy comes behind it, since one that a crash leaves alone would
    count as soon as the first is damaged, however much the other region went on meanwhile."""
    start = superblock.regions[number]
    for block in (start, start + superblock.header_copy):
        device.write(block * BLOCK, header.encode(superblock))
        device.flush()


def mend_headers(device: BlockDevice, superblock: Superblock, pair: HeaderPair) -> None:
    """Write the header in force where it is missing. Blocks; raises DeviceError. What the device has of it must be
    durable."""
    assert pair.header is not None
    for block in pair.amiss:
        device.write(block * BLOCK, pair.header.encode(superblock))
        device.flush()
