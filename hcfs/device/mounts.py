"""The mount tables, as far as they tell who uses a device."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hcfs.device.identity import Identity, identify


@dataclass(frozen=True, slots=True)
class MountEntry:
    """One line of a mountinfo file (man 5 proc)."""

    device: int
    """The st_dev of files there: the block device's number for most filesystems, an anonymous one for FUSE and
    btrfs."""
    directory: str
    filesystem: str
    source: str
    pid: int | None
    """A process in that mount namespace; None for our own."""
    options: str = ""
    """Of the filesystem, not of this mount of it."""

    @property
    def fuse_owner(self) -> int | None:
        """The user who mounted a FUSE filesystem; None for others."""
        match = re.search(r"(?:^|,)user_id=([0-9]+)(?:,|$)", self.options)
        return int(match[1]) if match and self.filesystem.startswith("fuse") else None

    def uses(self, target: Identity) -> bool:
        """Whether it is a mount of that block device, or a FUSE filesystem whose source is this device or image."""
        if target.is_block and self.device == target.device:
            return True
        # A source of another namespace is another namespace's path; one of a bind mount is the device's.
        may_name_it = target.is_block or self.filesystem.startswith("fuse")
        return self.pid is None and may_name_it and self.source.startswith("/") and identify(self.source) == target

    def __str__(self) -> str:
        where = "" if self.pid is None else f" in the mount namespace of process {self.pid}"
        return f"mounted at {self.directory} ({self.filesystem}){where}"


def mounts() -> Iterator[MountEntry]:
    """Every mount of our own namespace, then those of the others that may be looked into."""
    yield from _read("self", None)
    seen = {_namespace("self")}
    for process in filter(str.isdigit, os.listdir("/proc")):
        namespace = _namespace(process)
        if namespace and namespace not in seen:
            seen.add(namespace)
            yield from _read(process, int(process))


def unescape(text: str) -> str:
    r"""The kernel's tables write blanks, tabs, newlines and backslashes as \040 and the like."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _namespace(process: str) -> str | None:
    try:
        return os.readlink(f"/proc/{process}/ns/mnt")
    except OSError:
        return None


def _read(process: str, pid: int | None) -> Iterator[MountEntry]:
    try:
        text = os.fsdecode(Path(f"/proc/{process}/mountinfo").read_bytes())
    except OSError:
        return
    # Not splitlines: the kernel escapes newlines alone, and a name may hold a carriage return.
    for line in text.rstrip("\n").split("\n"):
        mount, _, filesystem = line.partition(" - ")
        number, _, directory = mount.split(" ")[2:5]
        kind, source, options = filesystem.split(" ")[:3]
        major, minor = number.split(":")
        yield MountEntry(os.makedev(int(major), int(minor)), unescape(directory), kind, unescape(source), pid, options)
