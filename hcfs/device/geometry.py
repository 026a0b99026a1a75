"""What a block device or image is made of: size, sectors, the alignment direct I/O asks for, and who built it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from hcfs.device import syscalls
from hcfs.device.protocol import BLOCK
from hcfs.device.sysfs import read_attribute, sysfs_directory, whole_disk


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes and alignments in bytes."""

    size: int
    """Exact: not rounded to blocks."""
    logical_block: int
    """Smallest unit that the medium takes; for an image the unit of direct I/O on its filesystem."""
    physical_block: int
    """Unit that the medium writes without reading first; for an image the filesystem's block."""
    dio_memory_alignment: int
    """What an address must be a multiple of in direct I/O; 0: there is no direct I/O."""
    dio_offset_alignment: int
    """The same for offsets and lengths."""
    rotational: bool | None = None
    """None: not known, as for images."""
    model: str | None = None
    serial: str | None = None

    @property
    def direct_io(self) -> bool:
        """Whether page-aligned I/O of whole blocks may go past the page cache."""
        return 0 < self.dio_memory_alignment <= BLOCK and 0 < self.dio_offset_alignment <= BLOCK


def geometry(fd: int) -> Geometry:
    """Geometry of an open block device or regular file; OSError if the kernel doesn't tell its size."""
    status = os.fstat(fd)
    return _block_geometry(fd, status.st_rdev) if stat.S_ISBLK(status.st_mode) else _image_geometry(fd, status)


def _block_geometry(fd: int, rdev: int) -> Geometry:
    logical, physical = syscalls.block_sector_sizes(fd)
    disk = whole_disk(sysfs_directory(rdev))
    memory, offset = syscalls.direct_io_alignment(fd) or (_queue_memory_alignment(disk) or logical, logical)
    rotational = read_attribute(disk / "queue/rotational")
    return Geometry(
        size=syscalls.block_size_bytes(fd),
        logical_block=logical,
        physical_block=physical,
        dio_memory_alignment=memory,
        dio_offset_alignment=offset,
        rotational=None if rotational is None else rotational == "1",
        model=read_attribute(disk / "device/model"),
        serial=read_attribute(disk / "device/serial") or read_attribute(disk / "serial"),
    )


def _image_geometry(fd: int, status: os.stat_result) -> Geometry:
    # Where the filesystem doesn't say, whole blocks at page addresses are the safest guess: others ask for less.
    memory, offset = syscalls.direct_io_alignment(fd) or (BLOCK, BLOCK)
    return Geometry(
        size=status.st_size,
        logical_block=offset or 1,
        physical_block=status.st_blksize,
        dio_memory_alignment=memory,
        dio_offset_alignment=offset,
    )


def _queue_memory_alignment(disk: Path) -> int | None:
    """From queue/dma_alignment, which is a mask: 511 for multiples of 512, 3 for multiples of 4."""
    mask = read_attribute(disk / "queue/dma_alignment")
    return int(mask) + 1 if mask else None
