"""One block device, image file or piece of memory: geometry, exclusive claim, direct I/O, aligned buffers."""

from __future__ import annotations

from hcfs.device.arena import Arena
from hcfs.device.buffers import BufferPool, PoolStatistics
from hcfs.device.errors import (
    DeviceError,
    DeviceHeld,
    DeviceNotFound,
    DeviceReadOnly,
    DeviceTooSmall,
    DeviceUnusable,
    NotADevice,
)
from hcfs.device.file import FileDevice
from hcfs.device.geometry import Geometry
from hcfs.device.holders import mounted_or_held
from hcfs.device.memory import MemoryDevice
from hcfs.device.opening import open_device
from hcfs.device.protocol import BLOCK, BlockDevice, IoMode, check_range

__all__ = [
    "BLOCK",
    "Arena",
    "BlockDevice",
    "BufferPool",
    "DeviceError",
    "DeviceHeld",
    "DeviceNotFound",
    "DeviceReadOnly",
    "DeviceTooSmall",
    "DeviceUnusable",
    "FileDevice",
    "Geometry",
    "IoMode",
    "MemoryDevice",
    "NotADevice",
    "PoolStatistics",
    "check_range",
    "mounted_or_held",
    "open_device",
]
