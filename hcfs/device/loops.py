"""Loop devices: the same bytes under a second name, which a claim has to see through."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hcfs.device import syscalls
from hcfs.device.identity import Identity, identify
from hcfs.device.sysfs import read_attribute, sysfs_directory, whole_disk


@dataclass(frozen=True, slots=True)
class Backing:
    """What a loop device stands on."""

    node: str
    """The loop device, /dev/loopN."""
    path: str
    """The file or block device under it, as the kernel tells it: a path that may lead nowhere when the file is deleted
    or belongs to another mount namespace."""
    by_partition: bool
    """It was a partition of the loop device that was asked about."""


def backing_of(device: Identity) -> Backing | None:
    """What the loop device, or the one that the partition belongs to, stands on; None for any other device and for
    files."""
    if not device.is_block:
        return None
    directory = sysfs_directory(device.device)
    disk = whole_disk(directory)
    path = read_attribute(disk / "loop/backing_file")
    return None if path is None else Backing(f"/dev/{disk.name}", path, disk != directory)


def loops_over(below: Identity) -> list[str]:
    """Nodes (/dev/loopN) of the loop devices that stand on this file or block device."""
    return [
        f"/dev/{directory.parent.name}"
        for directory in sorted(Path("/sys/block").glob("loop*/loop"))
        if _backing_identity(directory) == below
    ]


def _backing_identity(directory: Path) -> Identity | None:
    path = read_attribute(directory / "backing_file")
    known = None if path is None else identify(path)
    # The driver itself is asked only where the path leads nowhere (deleted, or of another mount namespace): while we
    # have a loop device open, even for a moment, losetup -d leaves it attached.
    return known or _ask_driver(f"/dev/{directory.parent.name}")


def _ask_driver(node: str) -> Identity | None:
    try:
        fd = os.open(node, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        device, inode, rdev = syscalls.loop_backing(fd)
    except OSError:
        return None
    finally:
        os.close(fd)
    return Identity(True, rdev, 0) if rdev else Identity(False, device, inode)
