"""Targets of commands that read a device or image themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hcfs.device import BufferPool, FileDevice, Geometry, NotADevice, open_device
from hcfs.mountpoint.client import mount_at
from hcfs.store.find import resolve_source

POOL_BYTES = 64 << 20
"""Buffers of a command; a mount's are another matter (`--memory`)."""


@contextmanager
def open_target(target: str, *, exclusive: bool = False, writable: bool = False) -> Iterator[FileDevice]:
    """The device for reading, or for writing too, closed at the end; without `exclusive` also one that is mounted
    now."""
    mounted = mount_at(target)
    if mounted is not None:
        raise NotADevice(
            f"{target} is a mount of {mounted.source}, and not a device: give {mounted.source}; "
            f"'hcfs status {target}' tells about the mount"
        )
    device = open_device(resolve_source(target), BufferPool(POOL_BYTES), read_only=not writable, exclusive=exclusive)
    try:
        yield device
    finally:
        device.close()


def describe(path: str, shape: Geometry) -> dict[str, Any]:
    """What tells a device from others: its path as given and resolved, size, sectors, maker's names."""
    return {
        "device": path,
        "resolved": os.path.realpath(path),
        "size_bytes": shape.size,
        "logical_block_bytes": shape.logical_block,
        "model": shape.model,
        "serial": shape.serial,
    }
