"""Reading bytes that don't lie on block boundaries from a device that only has blocks."""

from __future__ import annotations

from hcfs.device import BlockDevice
from hcfs.store.superblock import BLOCK


def read_bytes(device: BlockDevice, offset: int, length: int) -> bytes:
    """`length` bytes from `offset`. Blocks; raises DeviceError."""
    first, end = offset // BLOCK * BLOCK, -(-(offset + length) // BLOCK) * BLOCK
    buffer = memoryview(bytearray(end - first))
    device.read_into(first, buffer)
    return bytes(buffer[offset - first : offset - first + length])
