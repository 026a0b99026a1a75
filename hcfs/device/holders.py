"""Who has a block device or image: in words, for the one who can't have it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from errno import EBUSY
from pathlib import Path

from hcfs.device.identity import Identity, identify
from hcfs.device.loops import backing_of, loops_over
from hcfs.device.mounts import mounts, unescape
from hcfs.device.processes import lock_owners, name_processes, openers, writers
from hcfs.device.sysfs import partitions, read_attribute, sysfs_directory

UNSEEN = "the kernel or a process that can't be seen from here"


def mounted_or_held(path: str, *, but: str | None = None) -> str | None:
    """Who uses a device or image, in words that go on after "is in use: "; None if nobody does, or there is no such
    thing.

    Found are mounts (in other mount namespaces too), FUSE filesystems that name it as their source, swap, device mapper
    and md above it, the same of its partitions and of loop devices over it (that with the node `but` left out), and
    processes that claimed it. To know about claims it takes one for a moment, so another process that claims at that
    very moment is turned away.
    """
    return next(_holders(path, but=but), None)


def held_above(below: Identity, *, but: str | None = None) -> str | None:
    """Who uses a loop device over this file or block device; that with the node `but` is left out."""
    for node in loops_over(below):
        holder = None if node == but else next(_holders(node, downwards=False), None)
        if holder:
            return f"through {node}: {holder}"
    return None


def users_of_file(path: str) -> list[str]:
    """Who may be at work on a regular file without having claimed it, in words that go on after "is ": processes that
    have it open for writing, but those that started us, and loop devices over it. Empty for a block device."""
    file = identify(path)
    if file is None or file.is_block:
        return []
    found = [f"under {node}" for node in loops_over(file)]
    writing = name_processes(writers(file))
    return found + ([f"open for writing in {writing}"] if writing else [])


def name_lockers(path: str) -> str:
    """The processes that have a file locked, in words."""
    file = identify(path)
    if file is None:
        return UNSEEN
    candidates = openers(file)
    # The kernel remembers who took the lock, which may since have ended and left it to a child: then anybody who has
    # the file open may be it.
    owners = lock_owners(file)
    return name_processes([pid for pid in candidates if pid in owners] or candidates or owners) or UNSEEN


def _holders(path: str, *, downwards: bool = True, but: str | None = None) -> Iterator[str]:
    """Reasons, the most telling first. downwards: look at the file under a loop device as well."""
    target = identify(path)
    if target is None:
        return
    for mount in mounts():
        if mount.uses(target):
            # A kernel filesystem has no process of its own; a FUSE filesystem's has the device open.
            serving = name_processes(openers(target)) if mount.filesystem.startswith("fuse") else ""
            yield f"{mount}, served by {serving}" if serving else str(mount)
    if _is_swap(target):
        yield "used as swap space"
    if target.is_block:
        yield from _stacked(target)
    above = held_above(target, but=but)
    if above:
        yield above
    if target.is_block:
        if not _can_claim(path):
            yield f"claimed by {name_processes(openers(target)) or UNSEEN}"
        if downwards:
            yield from _below(target)
    elif not _can_lock(path):
        yield f"locked by {name_lockers(path)}"


def _stacked(device: Identity) -> Iterator[str]:
    directory = sysfs_directory(device.device)
    for holder in sorted(directory.glob("holders/*")):
        name = read_attribute(holder / "dm/name")
        yield f"held by {holder.name}" + (f" ({name})" if name else "")
    for partition in partitions(directory):
        node = f"/dev/{partition.name}"
        for inside in _holders(node, downwards=False):
            yield f"through its partition {node}: {inside}"


def _below(device: Identity) -> Iterator[str]:
    backing = backing_of(device)
    if backing and not backing.by_partition and not _can_lock(backing.path):
        yield f"through its backing file {backing.path}: locked by {name_lockers(backing.path)}"


def _can_claim(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        return error.errno != EBUSY
    return True


def _can_lock(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        os.close(fd)
    return True


def _is_swap(target: Identity) -> bool:
    try:
        lines = os.fsdecode(Path("/proc/swaps").read_bytes()).rstrip("\n").split("\n")[1:]
    except OSError:
        return False
    return any(identify(unescape(line.split()[0])) == target for line in lines)
