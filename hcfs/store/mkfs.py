"""Making a store on a device. Layout and order of writes: docs/format.md."""

from __future__ import annotations

import stat
import time
import uuid as uuids

from hcfs.device import BlockDevice
from hcfs.errors import UsageError
from hcfs.store import frame, page
from hcfs.store.attributes import ROOT_ID
from hcfs.store.errors import DeviceSizeMismatch
from hcfs.store.frame import FrameType
from hcfs.store.region_header import RegionHeader
from hcfs.store.superblock import (
    BLOCK,
    LABEL_BYTES,
    LARGEST_GRANULE,
    SMALLEST_GRANULE,
    Superblock,
    write_copies,
)
from hcfs.store.table import Row
from hcfs.store.transactions import MetadataIndex

DEFAULT_GRANULE = 256 << 10
"""Measured against 64 KiB and 1 MiB before the first line was written: no difference in speed, and the smallest reads
stay cheap"""
SMALLEST_DEVICE = 8 << 20
OBJECT_BYTES = 400
"""Bytes of a region for each object: a row of about 210 with a name of 90, a third more for the log behind the
checkpoint, and spare for extents and checksums of larger objects"""
REGION_BYTES = 1 << 20
MOST_OBJECTS = 4 << 20
"""Default limit: the index takes some 400 bytes of memory an object"""


def default_max_objects(device_bytes: int) -> int:
    """How many objects a device is prepared for: one for each 8 KiB below 4 GiB, one for each 16 KiB above, at most
    about four million."""
    each = 8 << 10 if device_bytes < 4 << 30 else 16 << 10
    return min(MOST_OBJECTS, max(1024, device_bytes // each))


def plan(
    device_name: str,
    device_bytes: int,
    *,
    label: str = "",
    granule: int = DEFAULT_GRANULE,
    max_objects: int | None = None,
    uuid: uuids.UUID | None = None,
) -> Superblock:
    """The superblock that mkfs would write. Raises UsageError, DeviceSizeMismatch."""
    if len(label.encode()) > LABEL_BYTES:
        raise UsageError(f"the label {label!r} has {len(label.encode())} bytes: at most {LABEL_BYTES} fit")
    if granule & (granule - 1) or not SMALLEST_GRANULE <= granule <= LARGEST_GRANULE:
        raise UsageError(f"a granule of {granule} bytes isn't possible: use a power of two from 64K to 1M")
    if device_bytes < SMALLEST_DEVICE:
        raise DeviceSizeMismatch(
            f"{device_name} has {device_bytes} bytes: an hcfs store needs at least {SMALLEST_DEVICE >> 20} MiB"
        )
    objects = default_max_objects(device_bytes) if max_objects is None else max_objects
    if not 16 <= objects <= 1 << 25:
        raise UsageError(f"a limit of {objects} objects isn't possible: use 16 to {1 << 25}")
    blocks = device_bytes // BLOCK
    region_blocks = -(-(objects * OBJECT_BYTES + REGION_BYTES) // BLOCK)
    data_start = 1 + 2 * region_blocks
    data_blocks = blocks - 1 - data_start
    if data_blocks < blocks // 4:
        raise UsageError(
            f"{device_name} is too small for {objects} objects: metadata would take more than three quarters of it"
        )
    return Superblock(
        uuid=uuid or uuids.uuid4(),
        label=label,
        granule=granule,
        device_blocks=blocks,
        regions=(1, 1 + region_blocks),
        region_blocks=region_blocks,
        data_start=data_start,
        data_blocks=data_blocks,
        max_objects=objects,
        created_ns=time.time_ns(),
    )


def _no_checksums(offset: int, length: int) -> bytes:
    raise AssertionError(f"an empty store has no checksums on the medium ({offset}, {length})")


def format_device(
    device: BlockDevice,
    *,
    label: str = "",
    granule: int = DEFAULT_GRANULE,
    max_objects: int | None = None,
    uid: int = 0,
    gid: int = 0,
    uuid: uuids.UUID | None = None,
) -> Superblock:
    """Make an empty store; what was on the device is gone. Blocks. `granule` in bytes; uid and gid own the root
    directory.

    Raises UsageError and DeviceSizeMismatch before anything is written, DeviceError. Checks for other uses of the
    device are the caller's."""
    superblock = plan(device.name, device.size, label=label, granule=granule, max_objects=max_objects, uuid=uuid)
    zeros = bytes(BLOCK)
    for block in (0, superblock.device_blocks - 1):
        device.write(block * BLOCK, zeros)
    device.flush()
    index = MetadataIndex(granule)
    now = superblock.created_ns
    index.put(Row(ROOT_ID, stat.S_IFDIR | 0o755, uid, gid, 0, 0, now, now, now, 1, now, (), b"", b""))
    payload, _ = page.draft(index, 1).finish(_no_checksums)
    # Both regions hold the empty store, so that the current one's first checkpoint can be damaged as any later one.
    for generation, region in ((0, superblock.regions[1]), (1, superblock.regions[0])):
        encoded = frame.encode(FrameType.PAGE, 0, 0, payload, frame.seed(superblock.uuid, generation))
        log_block = 1 + -(-len(encoded) // BLOCK)
        header = RegionHeader(generation, 0, len(encoded), log_block, 1, 1, now)
        device.write((region + 1) * BLOCK, encoded.ljust((log_block - 1) * BLOCK, b"\0"))
        device.write((region + log_block) * BLOCK, zeros)
        for block in (region, region + superblock.header_copy):
            device.write(block * BLOCK, header.encode(superblock))
    device.flush()
    write_copies(device, superblock)
    return superblock
