"""What makes a mount faster or safer where the daemon may: each is tried, and no mount fails for want of one."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess

from hcfs.fuse.limits import BACKGROUND, BACKGROUND_STREAMING, READ_AHEAD_KB
from hcfs.mountpoint.client import mount_at

log = logging.getLogger(__name__)

_CONNECTIONS = "/sys/fs/fuse/connections"
_PR_SET_IO_FLUSHER = 57
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def tune_process() -> None:
    """Keep the daemon out of deadlocks of memory reclaim, alive when memory runs out, and its heap in one piece.

    Written pages may wait for this very process: PR_SET_IO_FLUSHER tells the kernel. malloc gives threads heaps of
    their own, sixteen on two processors, and each keeps what it once held; the interpreter runs one thread at a time,
    so they need no more than two.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _mallopt(_M_ARENA_MAX, 2)
    if os.geteuid() != 0:
        return
    if libc.prctl(_PR_SET_IO_FLUSHER, 1, 0, 0, 0) != 0:
        log.info("PR_SET_IO_FLUSHER isn't set: %s", os.strerror(ctypes.get_errno()))
    _write("/proc/self/oom_score_adj", -900)


def tune_heap_for_writes() -> None:
    """Without the data plane pyfuse3 hands each write over as a fresh object of up to 1 MiB: taken from the heap
    instead of mapped anew, it costs no page faults."""
    for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
        _mallopt(option, 64 << 20)


def tune_mount(directory: str) -> int | None:
    """Raise the kernel's limits of the mount at a directory; st_dev of its files, None when the mount table lacks it.
    Blocks for a moment; asks nothing of the mount itself."""
    mount = mount_at(directory)
    if mount is None:
        log.info("the mount at %s isn't in the mount table: its limits stay the kernel's", directory)
        return None
    major, minor = os.major(mount.device), os.minor(mount.device)
    connection = f"{_CONNECTIONS}/{minor}"
    if os.geteuid() == 0 and not os.path.isdir(connection):
        subprocess.run(["mount", "-t", "fusectl", "fusectl", _CONNECTIONS], check=False, capture_output=True)
    _allow_background(connection, BACKGROUND)
    _write(f"/sys/class/bdi/{major}:{minor}/read_ahead_kb", READ_AHEAD_KB)
    return mount.device


def tune_streaming(device: int, *, streaming: bool) -> bool:
    """Let the mount whose files have this st_dev have more background requests while it streams; whether it may.
    Memory only."""
    return _allow_background(f"{_CONNECTIONS}/{os.minor(device)}", BACKGROUND_STREAMING if streaming else BACKGROUND)


def _allow_background(connection: str, count: int) -> bool:
    allowed = _write(f"{connection}/max_background", count)
    return _write(f"{connection}/congestion_threshold", count * 3 // 4) and allowed


def _write(path: str, value: int) -> bool:
    try:
        with open(path, "w") as file:
            file.write(str(value))
    except OSError as error:
        log.info("%s stays as it is: %s", path, error.strerror)
        return False
    return True


def _mallopt(option: int, value: int) -> None:
    try:
        done = ctypes.CDLL(None).mallopt(option, value)
    except AttributeError:
        done = 0  # another C library
    if not done:
        log.info("malloc's option %d stays as it is", option)
