"""The superblock: who the store is and how the device is laid out. Format: docs/format.md, "Superblock"."""

from __future__ import annotations

import struct
import uuid as uuids
from dataclasses import dataclass, replace

from crc32c import crc32c

from hcfs.device import BlockDevice, DeviceError
from hcfs.store.attributes import MAX_SLOT
from hcfs.store.errors import DeviceSizeMismatch, NotAStore, UnsupportedFormat

BLOCK = 4096
MAGIC = b"HCFS\x89\r\n\x1a"
VERSION = 1
SMALLEST_GRANULE, LARGEST_GRANULE = 64 << 10, 1 << 20
LABEL_BYTES = 64
REGION_BLOCKS_MAX = 1 << 22
"""More than the largest that mkfs makes: a mount reads a region to its end, and a sparse image can claim any"""
KNOWN_RO_COMPAT = 0
KNOWN_INCOMPAT = 0

_FIELDS = struct.Struct(f"<8sIIQQQ16s{LABEL_BYTES}sQQQIIQQQQQQ")
_CRC = struct.Struct("<I")
assert _FIELDS.size == 200, "docs/format.md gives the fields 200 bytes"


@dataclass(frozen=True, slots=True)
class Superblock:
    """One superblock; lengths and positions in blocks of 4,096 bytes unless named otherwise."""

    uuid: uuids.UUID
    label: str
    granule: int
    """Bytes covered by one data checksum"""
    device_blocks: int
    regions: tuple[int, int]
    region_blocks: int
    data_start: int
    data_blocks: int
    max_objects: int
    created_ns: int
    generation: int = 1
    format_version: int = VERSION
    compat: int = 0
    ro_compat: int = 0
    incompat: int = 0

    @property
    def max_slot(self) -> int:
        """Slots above this can't be needed: a higher one in metadata is taken for damage before memory is allocated for
        it. Six times what a region has room for, and as many again as can be staged at once."""
        return min(MAX_SLOT, (1 << 16) + self.region_blocks * BLOCK // 64)

    @property
    def header_copy(self) -> int:
        """Where a region's second header is, in blocks from the region's start: its last block."""
        return self.region_blocks - 1

    @property
    def metadata_limit(self) -> int:
        """Bytes that a checkpoint may take: three quarters of a region, so that the log behind it has room."""
        return (self.header_copy - 1) * BLOCK * 3 // 4

    def encode(self) -> bytes:
        """The block as it stands on the device, 4,096 bytes."""
        label = self.label.encode()
        if len(label) > LABEL_BYTES:
            raise ValueError(f"label of {len(label)} bytes; at most {LABEL_BYTES} fit")
        fields = _FIELDS.pack(
            MAGIC,
            self.format_version,
            BLOCK,
            self.compat,
            self.ro_compat,
            self.incompat,
            self.uuid.bytes,
            label,
            self.generation,
            self.created_ns,
            self.device_blocks,
            self.granule,
            0,
            *self.regions,
            self.region_blocks,
            self.data_start,
            self.data_blocks,
            self.max_objects,
        )
        body = fields.ljust(BLOCK - _CRC.size, b"\0")
        return body + _CRC.pack(crc32c(body))

    def newer(self) -> Superblock:
        """The same with the next generation."""
        return replace(self, generation=self.generation + 1)


def decode(block: bytes | memoryview) -> Superblock | None:
    """The superblock in a block, or None when it doesn't verify. Raises UnsupportedFormat."""
    if len(block) != BLOCK or bytes(block[: len(MAGIC)]) != MAGIC:
        return None
    if crc32c(block[: BLOCK - _CRC.size]) != _CRC.unpack_from(block, BLOCK - _CRC.size)[0]:
        return None
    (
        _,
        version,
        block_bytes,
        compat,
        ro_compat,
        incompat,
        uuid,
        label,
        generation,
        created,
        device_blocks,
        granule,
        _,
        *rest,
    ) = _FIELDS.unpack_from(block)
    if version != VERSION or block_bytes != BLOCK:
        raise UnsupportedFormat(
            f"the store has format version {version} with blocks of {block_bytes} bytes; this hcfs knows"
            f" version {VERSION} with {BLOCK}: use a newer hcfs"
        )
    first, second, region_blocks, data_start, data_blocks, max_objects = rest
    superblock = Superblock(
        uuid=uuids.UUID(bytes=uuid),
        label=label.rstrip(b"\0").decode(errors="replace"),
        granule=granule,
        device_blocks=device_blocks,
        regions=(first, second),
        region_blocks=region_blocks,
        data_start=data_start,
        data_blocks=data_blocks,
        max_objects=max_objects,
        created_ns=created,
        generation=generation,
        format_version=version,
        compat=compat,
        ro_compat=ro_compat,
        incompat=incompat,
    )
    if incompat & ~KNOWN_INCOMPAT:
        raise UnsupportedFormat(
            f"the store uses features that this hcfs doesn't know (incompat bits"
            f" {incompat & ~KNOWN_INCOMPAT:#x}): use a newer hcfs"
        )
    return superblock if _sane(superblock) else None


def _sane(sb: Superblock) -> bool:
    """Whether the geometry is possible: a block that verifies may still have been written by a faulty program."""
    first, second = sb.regions
    return (
        SMALLEST_GRANULE <= sb.granule <= LARGEST_GRANULE
        and sb.granule & (sb.granule - 1) == 0
        and 4 <= sb.region_blocks <= REGION_BLOCKS_MAX
        and first >= 1
        and second >= first + sb.region_blocks
        and sb.data_start >= second + sb.region_blocks
        and sb.data_blocks >= 1
        and sb.data_start + sb.data_blocks <= sb.device_blocks - 1
    )


@dataclass(frozen=True, slots=True)
class SuperblockPair:
    """What was found at both ends of the device."""

    superblock: Superblock
    """The valid one of the higher generation"""
    damaged: tuple[str, ...]
    """Which copies don't verify or differ: "first", "last" """


def _read(device: BlockDevice, block: int, failures: list[DeviceError]) -> Superblock | None:
    """The superblock in a block, if one can be read there."""
    buffer = bytearray(BLOCK)
    try:
        device.read_into(block * BLOCK, memoryview(buffer))
    except DeviceError as error:
        failures.append(error)
        return None
    return decode(bytes(buffer))


def read_pair(device: BlockDevice) -> SuperblockPair:
    """Read both superblocks. Raises NotAStore, UnsupportedFormat, DeviceSizeMismatch; DeviceError where one can't be
    read and the other isn't valid."""
    blocks = device.size // BLOCK
    if blocks < 2:
        raise NotAStore(f"{device.name} is too small to hold an hcfs store ({device.size} bytes)")
    failures: list[DeviceError] = []
    first = _read(device, 0, failures)
    last_at = first.device_blocks - 1 if first is not None else blocks - 1
    if last_at >= blocks:
        assert first is not None
        raise DeviceSizeMismatch(
            f"{device.name} has {blocks * BLOCK} bytes, but its superblock says"
            f" {first.device_blocks * BLOCK}: the device or image"
            " was truncated; restore its size, or format it again"
        )
    last = _read(device, last_at, failures)
    if first is None and last is not None and last.device_blocks - 1 != last_at:
        last = None
    candidates = [sb for sb in (first, last) if sb is not None]
    if not candidates and failures:
        raise failures[0]
    if not candidates:
        raise NotAStore(
            f"{device.name} holds no hcfs store (no valid superblock at either end); see what it holds with"
            f" 'hcfs mkfs --dry-run {device.name}' before you format it"
        )
    if first is not None and last is not None and (last.uuid, last.regions) != (first.uuid, first.regions):
        last, candidates = None, [first]
    best = max(candidates, key=lambda sb: sb.generation)
    damaged = tuple(place for place, sb in (("first", first), ("last", last)) if sb != best)
    return SuperblockPair(best, damaged)


def read_valid(device: BlockDevice, pair: SuperblockPair) -> bytes:
    """The block that the pair's superblock was decoded from, as it stands on the device. Raises DeviceError."""
    block = 0 if "first" not in pair.damaged else pair.superblock.device_blocks - 1
    buffer = bytearray(BLOCK)
    device.read_into(block * BLOCK, memoryview(buffer))
    return bytes(buffer)


def read_superblock(device: BlockDevice) -> Superblock:
    """The valid superblock of the higher generation. Raises as `read_pair`."""
    return read_pair(device).superblock


def write_copies(device: BlockDevice, superblock: Superblock) -> None:
    """Write both copies, the last block first, with a flush after each. Blocks; raises DeviceError."""
    encoded = superblock.encode()
    device.write((superblock.device_blocks - 1) * BLOCK, encoded)
    device.flush()
    device.write(0, encoded)
    device.flush()
