"""The directory to mount at: what may be there, and taking a mount away."""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import shutil
import stat
import subprocess
from typing import Literal

from hcfs.device.identity import identify
from hcfs.device.mounts import MountEntry
from hcfs.device.processes import name_processes
from hcfs.errors import HcfsError
from hcfs.mountpoint.client import TIME_LIMIT, mount_at, resolved

_MNT_FORCE = 1
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8


class Busy(HcfsError):
    """The mount is in use."""

    errno = errno.EBUSY


def prepare(directory: str, source: str) -> str:
    """The absolute path to mount at, a dead hcfs mount there cleared. HcfsError when nothing can be mounted there."""
    path = resolved(directory)
    present = mount_at(path)
    if present is not None:
        condition = condition_of(path)
        if condition == "hung":
            raise hung(directory)
        if condition == "alive":
            same = identify(present.source) is not None and identify(present.source) == identify(source)
            what = f"{source} is mounted at {directory} already" if same else f"{present.source} is at {directory}"
            raise HcfsError(f"{what}; to mount anew, run 'hcfs umount {directory}' first")
        require_owner(directory, present)
        clear_dead(path)
    if not stat.S_ISDIR(_mode_of(path)):
        raise HcfsError(f"{directory} is not a directory; name one to mount at")
    return path


def require_owner(directory: str, mounted: MountEntry) -> None:
    """HcfsError unless this user may take the mount away, which root may, and whoever made it."""
    user, owner = os.geteuid(), mounted.fuse_owner
    if user in (0, owner) or owner is None:
        return
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"user {owner}"
    who = name if owner == 0 else f"root and {name}"
    refusal = HcfsError(
        f"{directory} was mounted by {name}, so this user can't unmount it, only {who} can: run 'hcfs umount "
        f"{directory}' as one of them, as with sudo"
    )
    refusal.errno = errno.EPERM
    raise refusal


def clear_dead(path: str) -> None:
    """Take a mount whose daemon has died away.

    By force, which ends the connection for whoever waits for an answer: a thread of the daemon that was telling the
    kernel about a name when it was killed waits for a directory's lock, whose holder waits for the daemon, and keeps
    /dev/fuse open meanwhile."""
    if os.geteuid() == 0:
        unmount_now(path, lazy=True, force=True)
    else:
        subprocess.run([_fusermount(), "-u", "-z", path], check=False, capture_output=True)


def condition_of(path: str) -> Literal["alive", "dead", "hung"]:
    """How the daemon of the mount at `path` answers. Another process asks: a call to one that hangs may never end.

    It asks for statfs, which the kernel never answers by itself, as it does stat for a while after a daemon's death."""
    process = subprocess.Popen(
        ["stat", "-f", path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        failed = process.wait(TIME_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        return "hung"
    return "dead" if failed else "alive"


def hung(directory: str) -> HcfsError:
    """What to say about a mount that doesn't answer."""
    return HcfsError(
        f"the mount at {directory} doesn't answer within {TIME_LIMIT:g} s: wait for its device, or give it up with "
        f"'hcfs umount --lazy {directory}'"
    )


def unmount_now(path: str, *, lazy: bool, force: bool = False) -> None:
    """By umount(2), or by fusermount3 where only root may. Busy names who uses it; HcfsError for other refusals. force:
    for root, end the connection to the daemon as well."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        flags = _UMOUNT_NOFOLLOW | (_MNT_DETACH if lazy else 0) | (_MNT_FORCE if force else 0)
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
    others = (entry for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid())
    return [int(entry) for entry in others if _uses(entry, path)]


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


def _mode_of(path: str) -> int:
    try:
        return os.stat(path).st_mode
    except OSError as error:
        remedy = f"make it with 'mkdir -p {path}'" if error.errno == errno.ENOENT else "name another directory"
        raise HcfsError(f"{path} can't be mounted at: {error.strerror}; {remedy}") from error


def _fusermount() -> str:
    return shutil.which("fusermount3") or shutil.which("fusermount") or "fusermount3"
