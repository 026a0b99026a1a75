"""Exclusive use of a block device or image, under whatever name others know it.

A block device is opened O_EXCL: the kernel refuses the second claim, by any path, also of a disk whose partition is
claimed, mounted or under device mapper. An image file is locked with flock. A loop device has both: its claim goes down
to what it stands on, and a claim of that looks for loop devices in use above, so it doesn't matter who comes first.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import ExitStack
from errno import EBUSY, ETXTBSY

from hcfs.device.errors import DeviceHeld, DeviceUnusable
from hcfs.device.holders import held_above, mounted_or_held, name_lockers
from hcfs.device.identity import identify_descriptor
from hcfs.device.loops import backing_of


def open_claimed(path: str, flags: int) -> tuple[int, ExitStack]:
    """Open a block device or image for exclusive use.

    Returns its descriptor, and the claims on what lies under it, to be closed after it. DeviceHeld if somebody else has
    it; OSError where it can't be opened at all.
    """
    with ExitStack() as claims:
        fd = _open_exclusively(path, flags)
        undo = claims.enter_context(ExitStack())
        undo.callback(os.close, fd)
        _claim_around(path, fd, claims)
        undo.pop_all()
        return fd, claims.pop_all()


def _open_exclusively(path: str, flags: int, *, lock: int = fcntl.LOCK_EX, but: str | None = None) -> int:
    is_block = stat.S_ISBLK(os.stat(path).st_mode)
    try:
        fd = os.open(path, flags | (os.O_EXCL if is_block else 0))
    except OSError as error:
        if error.errno in (EBUSY, ETXTBSY):
            raise DeviceHeld(path, mounted_or_held(path, but=but) or "") from error
        raise
    if is_block:
        return fd
    try:
        fcntl.flock(fd, lock | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise DeviceHeld(path, mounted_or_held(path, but=but) or f"locked by {name_lockers(path)}") from error
    except OSError as error:
        os.close(fd)
        reason = f"its filesystem has no locks ({error.strerror})"
        raise DeviceUnusable(f"{path} can't be claimed: {reason}; put the image on a local filesystem") from error
    return fd


def _claim_around(path: str, fd: int, claims: ExitStack, *, but: str | None = None) -> None:
    """Claim what a loop device stands on, and refuse what is in use through a loop device other than `but`."""
    target = identify_descriptor(fd)
    if target is None:
        return
    above = held_above(target, but=but)
    if above:
        raise DeviceHeld(path, above)
    backing = backing_of(target)
    if backing is None:
        return
    # Partitions of one loop device may be claimed side by side, but not beside the whole file.
    lock = fcntl.LOCK_SH if backing.by_partition else fcntl.LOCK_EX
    try:
        under = _open_exclusively(backing.path, os.O_RDONLY | os.O_CLOEXEC, lock=lock, but=backing.node)
        claims.callback(os.close, under)
        _claim_around(backing.path, under, claims, but=backing.node)
    except DeviceHeld as error:
        raise DeviceHeld(path, f"through its backing file {backing.path}: {error.holder}") from error
    except OSError:
        # Deleted, or at another path here: by this one nobody else reaches it either.
        return
