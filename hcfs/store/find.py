"""Finding a store by its UUID or label among the machine's block devices.

blkid and the kernel don't know hcfs's superblock, so `UUID=` and `LABEL=` are looked up here.
"""

from __future__ import annotations

import errno
import os
import uuid as uuids
from collections.abc import Iterator
from pathlib import Path

from hcfs.device import BLOCK, BufferPool, DeviceError, DeviceNotFound, DeviceUnusable, open_device
from hcfs.errors import HcfsError, UsageError
from hcfs.store.errors import StoreError
from hcfs.store.superblock import Superblock, read_superblock

_NAMED = 3
"""Devices named in a sentence."""


class StoreNotFound(HcfsError):
    """No block device, or more than one, holds a store of that UUID or label."""

    errno = errno.ENODEV


def resolve_source(source: str) -> str:
    """The path for a source: `UUID=...` and `LABEL=...` are looked up, anything else is a path already.

    Reads the superblocks of all block devices, which blocks. UsageError for what isn't a UUID; StoreNotFound.
    """
    kind, equals, wanted = source.partition("=")
    if not equals or kind not in ("UUID", "LABEL"):
        return source
    if kind == "UUID":
        try:
            wanted = str(uuids.UUID(wanted))
        except ValueError:
            raise UsageError(f"{source} names no UUID: give it as 'hcfs info' prints it") from None
    elif not wanted:
        raise UsageError("LABEL= names no label: give one, as in LABEL=cache0")
    unreadable: dict[str, str] = {}
    found = [
        path
        for path, superblock in _stores(unreadable)
        if wanted == (str(superblock.uuid) if kind == "UUID" else superblock.label)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise StoreNotFound(f"{source} is on several devices ({', '.join(found)}): name one of them by its path")
    raise StoreNotFound(f"{_nowhere(source, unreadable)}: see 'hcfs info DEVICE' for what one holds")


def _nowhere(source: str, unreadable: dict[str, str]) -> str:
    if not unreadable:
        return f"no block device holds a store with {source}"
    names = ", ".join(list(unreadable)[:_NAMED]) + (" and others" if len(unreadable) > _NAMED else "")
    reasons = " or ".join(sorted(set(unreadable.values())))
    remedy = "" if os.geteuid() == 0 else ", try as root"
    return f"no block device that can be read holds a store with {source}, and {names} can't be ({reasons}{remedy})"


def _stores(unreadable: dict[str, str]) -> Iterator[tuple[str, Superblock]]:
    """Path and superblock of every block device that holds a store; paths that may not be read go to `unreadable`, with
    the reason."""
    pool = BufferPool(4 * BLOCK)
    # Its lines, behind two of heading: major, minor, blocks, name.
    for line in Path("/proc/partitions").read_text().splitlines()[2:]:
        name = line.split()[3]
        # Something stands on a device that has holders (a multipath map, a mirror): the store is seen through that.
        holders = Path("/sys/class/block", name.replace("/", "!"), "holders")
        if holders.exists() and any(holders.iterdir()):
            continue
        path = f"/dev/{name}"
        try:
            device = open_device(path, pool, read_only=True, exclusive=False)
        except DeviceNotFound as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                unreadable[path] = os.strerror(error.errno)
            continue
        except DeviceUnusable:
            continue
        try:
            yield path, read_superblock(device)
        except (StoreError, DeviceError):
            continue
        finally:
            device.close()
