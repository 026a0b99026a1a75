"""The directory to mount at: what may be there, and taking a mount away."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import subprocess

from hcfs.device.identity import identify
from hcfs.device.processes import name_processes
from hcfs.errors import HcfsError
from hcfs.mount.client import mount_at, resolved

_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8


class Busy(HcfsError):
    """The mount is in use."""

    errno = errno.EBUSY


def prepare(directory: str, source: str) -> str:
    """The absolute path to mount at, a dead hcfs mount there cleared. HcfsError when nothing can be mounted there."""
    path = resolved(directory)
    mode = _mode_of(path)
    if mode is None:
        clear_dead(path)
        mode = _mode_of(path)
    if mode is None or not stat.S_ISDIR(mode):
        raise HcfsError(f"{directory} is not a directory; name one to mount at")
    present = mount_at(path)
    if present is not None:
        same = identify(present.source) is not None and identify(present.source) == identify(source)
        what = f"{source} is mounted at {directory} already" if same else f"{present.source} is mounted at {directory}"
        raise HcfsError(f"{what}; to mount anew, run 'hcfs umount {directory}' first")
    return path


def clear_dead(path: str) -> None:
    """Take a mount whose daemon has died away."""
    if os.geteuid() == 0:
        unmount_now(path, lazy=True)
    else:
        subprocess.run([_fusermount(), "-u", "-z", path], check=False, capture_output=True)


def is_dead(path: str) -> bool:
    """Whether the daemon of the mount at `path` is gone."""
    try:
        os.statvfs(path)  # Unlike stat, never answered from the kernel's cache of a daemon that has just died.
    except OSError as error:
        return error.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    return False


def unmount_now(path: str, *, lazy: bool) -> None:
    """umount(2), or fusermount3 where only root may. Busy names who uses it; HcfsError for other refusals."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        flags = _UMOUNT_NOFOLLOW | (_MNT_DETACH if lazy else 0)
        if libc.umount2(os.fsencode(path), flags) == 0:
            return
        code = ctypes.get_errno()
        if code != errno.EBUSY:
            raise HcfsError(f"{path} can't be unmounted: {os.strerror(code)}")
    else:
        done = subprocess.run([_fusermount(), "-u", *["-z"] * lazy, path], check=False, capture_output=True, text=True)
        if done.returncode == 0:
            return
        if "busy" not in done.stderr:
            raise HcfsError(f"{path} can't be unmounted: {done.stderr.strip().rpartition(': ')[2]}")
    who = name_processes(users_of(path))
    by = f" by {who}" if who else ""
    raise Busy(f"{path} is in use{by}; close what is open there, or give --lazy to let it end with its last user")


def users_of(path: str) -> list[int]:
    """Processes with a file or a working directory under `path`, as far as they may be looked into."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _uses(entry, path)]


def _uses(process: str, path: str) -> bool:
    links = [f"/proc/{process}/cwd", f"/proc/{process}/root"]
    try:
        links += [f"/proc/{process}/fd/{number}" for number in os.listdir(f"/proc/{process}/fd")]
    except OSError:
        return False
    for link in links:
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if target == path or target.startswith(path.rstrip("/") + "/"):
            return True
    return False


def _mode_of(path: str) -> int | None:
    """None where a dead mount is."""
    if is_dead(path):
        return None
    try:
        return os.stat(path).st_mode
    except OSError as error:
        if error.errno in (errno.ENOTCONN, errno.ECONNABORTED):
            return None
        remedy = f"make it with 'mkdir -p {path}'" if error.errno == errno.ENOENT else "name another directory"
        raise HcfsError(f"{path} can't be mounted at: {error.strerror}; {remedy}") from error


def _fusermount() -> str:
    return shutil.which("fusermount3") or shutil.which("fusermount") or "fusermount3"
