"""Which process a calling thread belongs to, and how that process ends."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

# Numbers of fields in /proc/PID/stat, proc(5).
_STATE, _THREADS, _START_TIME, _EXIT_CODE = 3, 20, 22, 52

_MOUNT_ID = re.compile(rb"mnt_id:\t(\d+)")


class Process(NamedTuple):
    """A process for ever: process ids are used again, a process id with its start time is not."""

    tgid: int
    started: int
    """Clock ticks since boot."""


def process_of(thread: int) -> Process | None:
    """The process of a thread id; None when it can't be told: a client in another pid namespace, or hidden by /proc.

    The thread waits for our answer while this runs, so its id can't have been given to another one.
    """
    if thread <= 0:
        return None
    try:
        status = _read(f"/proc/{thread}/status")
        start = status.index(b"\nTgid:") + 6
        tgid = int(status[start : status.index(b"\n", start)])
    except (OSError, ValueError):
        return None
    started = _started(tgid)
    return None if started is None else Process(tgid, started)


_callers: dict[int, tuple[int, Process]] = {}
"""Thread id: inode number of its entry in /proc, and its process."""

_CALLERS_KEPT = 4096


def process_of_caller(thread: int) -> Process | None:
    """As process_of, for a thread that waits for our answer, remembered from its last call: the two files take 0.1 ms
    to read, and a client's threads call again and again. The entry of a thread that has the same id later has another
    inode number."""
    try:
        inode = os.stat(f"/proc/{thread}").st_ino
    except OSError:
        return None
    known = _callers.get(thread)
    if known is not None and known[0] == inode:
        return known[1]
    process = process_of(thread)
    if process is not None:
        if len(_callers) >= _CALLERS_KEPT:
            _callers.clear()
        _callers[thread] = inode, process
    return process


def is_alive(process: Process) -> bool:
    """Whether the process is still there, a leader that has ended before its other threads included."""
    return _started(process.tgid) == process.started


def is_running(process: Process) -> bool:
    """Whether its leader hasn't ended: threads that are stuck in the kernel may be all that is left of one that has."""
    fields = _fields(process.tgid)
    return fields is not None and _field(fields, _START_TIME) == process.started and fields[0] not in (b"Z", b"X")


def has_ended(process: Process) -> bool:
    """Whether all its threads have ended, and so its files are closed; it may wait for its parent to take note."""
    fields = _fields(process.tgid)
    if fields is None or _field(fields, _START_TIME) != process.started:
        return True
    return fields[0] in (b"Z", b"X") and _field(fields, _THREADS) <= 1


def was_killed(process: Process) -> bool:
    """Whether the process is being, or was, ended by a signal; False when it can't be told.

    Asked at each FLUSH: the kernel sends that also for the files of a dying process, and only exit_code tells its end
    from a close. The process's own entry is read, not the thread's, which may be gone. Needs root or the same user
    (the field reads 0 otherwise).
    """
    fields = _fields(process.tgid)
    if fields is None or _field(fields, _START_TIME) != process.started:
        return False
    return bool(_field(fields, _EXIT_CODE) & 0x7F)


def holds_open(ino: int, device: int | None) -> bool:
    """Whether any process, as far as they may be looked into, has a file with this inode number open on the filesystem
    of this device number (st_dev), or on one that isn't mounted any more. None: on any."""
    line = b"\nino:\t%d\n" % ino
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            for number in os.listdir(f"/proc/{process}/fdinfo"):
                with open(f"/proc/{process}/fdinfo/{number}", "rb") as file:
                    info = file.read()
                if line in info and _device_of(process, _MOUNT_ID.search(info)) in (None, device):
                    return True
        except OSError:
            continue
    return False


def _device_of(process: str, mount: re.Match[bytes] | None) -> int | None:
    """The st_dev of the files of a mount in a process's mount namespace; None when it isn't mounted."""
    if mount is not None:
        with open(f"/proc/{process}/mountinfo", "rb") as file:
            for line in file:
                number, _, device = line.split(b" ", 3)[:3]
                if number == mount[1]:
                    major, minor = device.split(b":")
                    return os.makedev(int(major), int(minor))
    return None


def _started(tgid: int) -> int | None:
    fields = _fields(tgid)
    return None if fields is None else _field(fields, _START_TIME)


def _fields(tgid: int) -> list[bytes] | None:
    """/proc/PID/stat from field 3 on: the command before it may hold blanks and brackets of its own."""
    try:
        return _read(f"/proc/{tgid}/stat").rpartition(b")")[2].split()
    except OSError:
        return None


def _field(fields: list[bytes], number: int) -> int:
    return int(fields[number - _STATE])


def _read(path: str) -> bytes:
    """A small file of /proc, which the kernel makes up anew at each read: so with one read, and without a buffer's
    second one for the end."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 8192)
    finally:
        os.close(file)
