"""What the kernel tells about a block device under /sys, which may be absent in a container."""

from __future__ import annotations

import os
from pathlib import Path


def sysfs_directory(rdev: int) -> Path:
    """The kernel's directory for a block device number; it needn't exist."""
    return Path(f"/sys/dev/block/{os.major(rdev)}:{os.minor(rdev)}").resolve()


def whole_disk(directory: Path) -> Path:
    """The disk's sysfs directory for that of a disk or of one of its partitions."""
    return directory.parent if (directory / "partition").exists() else directory


def takes_discard(rdev: int) -> bool:
    """Whether a block device's queue takes discards."""
    limit = read_attribute(whole_disk(sysfs_directory(rdev)) / "queue/discard_max_bytes")
    return limit is not None and int(limit) > 0


def partitions(directory: Path) -> list[Path]:
    """The sysfs directories of a disk's partitions."""
    return sorted(path.parent for path in directory.glob("*/partition"))


def read_attribute(path: Path) -> str | None:
    """Text of a sysfs file, None if it is absent, unreadable or blank."""
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None
