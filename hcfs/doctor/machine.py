"""The machine: FUSE, memory, the clock, and what dead daemons left in the mount table."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import stat
import subprocess
import time
from pathlib import Path

import hcfs
from hcfs.device.mounts import mounts
from hcfs.doctor.finding import Findings, failed, ok, warning
from hcfs.frontends.front_ends import FUSE_DEVICE
from hcfs.mountpoint.client import FILESYSTEM
from hcfs.mountpoint.mountpoint import condition_of

CGROUPS = "/sys/fs/cgroup"
FUSE_CONFIGURATION = "/etc/fuse.conf"
_PACKAGE = "install the package fuse3"
_TIME_ERROR = 5
"""What adjtimex(2) answers while nothing keeps the clock right."""


def fuse_device(path: str = FUSE_DEVICE) -> Findings:
    """Whether this user may open it for reading and writing."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        remedies = {
            errno.ENOENT: "load the module with 'modprobe fuse'; give a container '--device /dev/fuse'",
            errno.ENODEV: "load the module with 'modprobe fuse'",
            errno.EACCES: f"let this user read and write it, as with 'chmod 666 {path}'",
            errno.EPERM: "give the container '--device /dev/fuse --cap-add SYS_ADMIN'",
        }
        remedy = remedies.get(error.errno or 0, "the kernel's log (dmesg) may say why")
        yield failed("fuse device", f"{path} can't be opened: {error.strerror}", remedy)
        return
    yield ok("fuse device", f"{path} can be opened for reading and writing")


def fusermount() -> Findings:
    """The helper that mounts; whether it may, for a user who isn't root, and who may give allow_other."""
    helper = shutil.which("fusermount3")
    if helper is None:
        text = "it isn't installed, or not in PATH"
        if os.geteuid() == 0:
            yield warning("fusermount3", f"{text}: root can mount without, but not with the data plane", _PACKAGE)
        else:
            yield failed("fusermount3", text, _PACKAGE)
        return
    said = subprocess.run([helper, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    version = said.rpartition(" ")[2] or "of no known version"
    if os.geteuid() == 0:
        yield ok("fusermount3", f"{helper} {version}")
        return
    status = os.stat(helper)
    if not (status.st_mode & stat.S_ISUID and status.st_uid == 0):
        yield failed(
            "fusermount3",
            f"{helper} isn't set-user-ID root, so it can't mount for others than root",
            f"run 'chown root {helper} && chmod u+s {helper}', or mount as root",
        )
        return
    yield ok("fusermount3", f"{helper} {version}, set-user-ID root")
    if not _says_allow_other():
        yield warning(
            "allow_other",
            f"{FUSE_CONFIGURATION} doesn't have user_allow_other: only this user will see what this user mounts",
            f"add the line user_allow_other to {FUSE_CONFIGURATION}, or mount as root",
        )


def _says_allow_other() -> bool:
    try:
        lines = Path(FUSE_CONFIGURATION).read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(line.strip() == "user_allow_other" for line in lines)


def libfuse() -> Findings:
    """The library that pyfuse3 has loaded; its kernel, too."""
    yield ok("kernel", f"{os.uname().sysname} {os.uname().release}")
    try:
        import pyfuse3
    except ImportError as error:
        yield failed("libfuse", f"pyfuse3 can't be loaded: {error}", f"{_PACKAGE}, and install hcfs again")
        return
    # The very file that it is linked with, of all that may be installed.
    found = re.search(r"(/\S*libfuse3\S*)$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    if found is None:
        yield warning("libfuse", f"pyfuse3 {pyfuse3.__version__} has no libfuse3 loaded", "install pyfuse3 again")
        return
    library = ctypes.CDLL(found[1])
    library.fuse_pkgversion.restype = ctypes.c_char_p
    yield ok("libfuse", f"{found[1]} {library.fuse_pkgversion().decode()}, through pyfuse3 {pyfuse3.__version__}")


def memory_for(budget: int, used: int = 0, pid: int | str = "self") -> Findings:
    """Whether the buffers of a mount fit. budget: --memory, in bytes. used: bytes that its daemon, of this pid, has."""
    available, where = memory_available(pid)
    missing = budget - used
    has = f", of which its daemon has {used >> 20} MiB" if used else ""
    text = f"{available >> 20} MiB available ({where}) for --memory of {budget >> 20} MiB{has}"
    if available < missing:
        yield failed("memory", text, "mount with a smaller --memory, or give the machine or its cgroup more")
    elif available < 2 * missing:
        yield warning("memory", f"{text}, and the index needs some too", "mount with a smaller --memory")
    else:
        yield ok("memory", text)


def memory_available(pid: int | str = "self", cgroups: str = CGROUPS) -> tuple[int, str]:
    """Bytes that a process can still get, and who says so: the machine, or a cgroup (version 2) above it."""
    found = re.search(r"^MemAvailable:\s+([0-9]+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    best = (int(found[1]) << 10 if found else 0, "the machine")
    line = re.search(r"^0::(/.*)$", Path(f"/proc/{pid}/cgroup").read_text(), re.MULTILINE)
    group = Path(cgroups + line[1]) if line else Path(cgroups)
    while group.is_relative_to(cgroups):
        try:
            limit, now = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
            if limit != "max":
                best = min(best, (max(0, int(limit) - int(now)), f"the cgroup {group}"))
        except (OSError, ValueError):
            pass  # no limit is set there, or it can't be seen
        group = group.parent
    return best


def clock() -> Findings:
    """Whether it can be right, and whether anything keeps it right."""
    yield from clock_at(time.time(), os.stat(hcfs.__file__).st_mtime, kept=_is_kept())


def clock_at(now: float, installed: float, *, kept: bool) -> Findings:
    """What a clock that says `now` is worth. now, installed: seconds since 1970, by the clock and of this program's
    files. kept: the kernel says that the clock is synchronised."""
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    remedy = "set it, and keep it right with chrony or systemd-timesyncd"
    if now < installed:
        yield failed("clock", f"{shown} is before the time at which hcfs was installed here", remedy)
    elif not kept:
        yield warning(
            "clock",
            f"{shown}; the kernel says that nothing keeps it right. Origins on S3 refuse requests that are minutes off",
            remedy,
        )
    else:
        yield ok("clock", f"{shown}, kept right")


def _is_kept() -> bool:
    room = ctypes.create_string_buffer(512)  # struct timex, with modes 0: only asked
    return ctypes.CDLL(None, use_errno=True).adjtimex(room) not in (-1, _TIME_ERROR)


def dead_mounts(apart: str | None = None) -> Findings:
    """Mounts of hcfs whose daemon has died, or doesn't answer; but for the one at the directory `apart`."""
    table = {each.directory for each in mounts() if each.pid is None and each.filesystem == FILESYSTEM} - {apart}
    conditions = {directory: condition_of(directory) for directory in sorted(table)}
    for directory, condition in conditions.items():
        if condition == "dead":
            remedy = f"mount again at {directory}, or clear it with 'hcfs umount {directory}'"
            yield warning("mount table", f"the daemon of the mount at {directory} has died", remedy)
        elif condition == "hung":
            remedy = f"wait for its device, or give it up with 'hcfs umount --lazy {directory}'"
            yield warning("mount table", f"the mount at {directory} doesn't answer", remedy)
    if all(condition == "alive" for condition in conditions.values()):
        yield ok("mount table", f"{'other ' * (apart is not None)}mounts of hcfs: {len(conditions)}, and none is dead")
