"""The device or image under a mount."""

from __future__ import annotations

import os
import stat
from contextlib import closing

from hcfs.device import BLOCK, BufferPool, FileDevice, open_device
from hcfs.device.errors import DeviceUnusable
from hcfs.device.sysfs import read_attribute, sysfs_directory, takes_discard
from hcfs.doctor.finding import Findings, ok, warning

_SECTOR = 512
"""What sysfs counts in, whatever the device's own are."""


def medium(path: str, io: str) -> Findings:
    """Kind, blocks, alignment and discards of a device or image. io: as the mount's status has it."""
    try:
        device = open_device(path, BufferPool(1 << 20), read_only=True, exclusive=False)
    except DeviceUnusable as error:
        yield warning("device", f"it can't be looked at: {error}", "ask as root")
        return
    with closing(device):
        yield from _described(device, os.stat(path))
    if io == "direct":
        yield ok("direct I/O", "the page cache is left alone")
    else:
        yield warning(
            "direct I/O",
            "the medium refuses O_DIRECT: data goes through the page cache, in memory twice",
            "use a block device, or an image on ext4 or xfs",
        )


def _described(device: FileDevice, status: os.stat_result) -> Findings:
    shape, is_block = device.geometry, stat.S_ISBLK(status.st_mode)
    kind = f"block device{f' {shape.model}' if shape.model else ''}" if is_block else "image file"
    text = (
        f"{kind}, {shape.size >> 20} MiB; logical blocks of {shape.logical_block}, physical of {shape.physical_block} "
        "bytes"
    )
    if shape.rotational:
        yield warning("device", f"{text}; a rotating disk, where each object is a seek", "use an SSD")
    else:
        yield ok("device", text)
    if not is_block:
        return
    begins = int(read_attribute(sysfs_directory(status.st_rdev) / "start") or 0) * _SECTOR
    unit = max(BLOCK, shape.physical_block)
    if begins % unit:
        yield warning(
            "alignment",
            f"the partition begins at {begins} bytes, which isn't a multiple of {unit}: each block lies across two",
            "make the partition anew at a multiple of 1 MiB",
        )
    else:
        yield ok("alignment", f"it begins at {begins} bytes, a multiple of {unit}")
    yield ok("discard", f"the device takes {'discards' if takes_discard(status.st_rdev) else 'no discards'}")
