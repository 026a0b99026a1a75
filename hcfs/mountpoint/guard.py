"""A small process that ends the kernel's side of a mount when its daemon has died in the middle of a notice.

A notice about a name waits in the kernel, uninterruptibly, for the directory; the directory may be held by a call that
waits for the daemon's answer. Killed then, the daemon can't go: its thread waits for the call, the call for an answer
that nobody will give, and the connection stays open, since the thread keeps it so. Aborting the connection ends all of
it. (Seen with kill -9 during evictions: clients hung for ever, and whoever looked at the directory with them.)
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import time
from typing import NamedTuple

from hcfs.host.process import Process, has_ended, is_running, process_of
from hcfs.host.signals import ignore_all_signals
from hcfs.mountpoint.client import connection_of
from hcfs.mountpoint.fuse_connections import servers_of

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_LOOK = 0.5
"""Seconds between looks at the daemon."""

_ENDING = 0.3
"""Seconds for the threads of a daemon that ends to be gone, if none is stuck."""

_CONNECTIONS = "/sys/fs/fuse/connections"


def guard_child(path: str, pid: int) -> None:
    """Be the guard of the daemon `pid`, a child of this process, for the mount that it makes at `path`. Returns when it
    has ended and, as it is waited for here, is gone from the process table."""
    _leave_session(signal.SIGCHLD)
    daemon = process_of(pid)
    if daemon is not None:
        _watch(daemon, path, signal.SIGCHLD)
    os.waitpid(pid, 0)


def start_guard(path: str) -> None:
    """Fork a guard of the calling process, which is about to serve a mount at `path`. Call it before there are threads
    and open files, which would live on in the guard."""
    daemon = process_of(os.getpid())
    if daemon is None or os.fork():
        return
    try:
        _leave_session(signal.SIGUSR1)
        # Sent when the thread that forked has ended, whatever becomes of the others.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0)
        _watch(daemon, path, signal.SIGUSR1)
    finally:
        os._exit(0)


def identity(connection: int) -> int | None:
    """What tells a connection from those that had its number before, or get it once it is gone: the inode number of its
    directory, which the kernel's list counts upwards. None where there is no such connection, or no list."""
    try:
        return os.stat(f"{_CONNECTIONS}/{connection}").st_ino
    except OSError:
        return None


def abort(connection: int) -> bool:
    """Make the kernel answer everything that waits for a daemon with an error. False when it can't be done."""
    try:
        with open(f"{_CONNECTIONS}/{connection}/abort", "w") as file:
            file.write("1")
    except OSError as error:
        log.info("FUSE connection %d isn't aborted: %s", connection, error.strerror)
        return False
    return True


class _Served(NamedTuple):
    """A daemon's connection."""

    connection: int
    identity: int


def _watch(daemon: Process, path: str, wake: signal.Signals) -> None:
    """Return when the daemon has ended, of itself or by what is done about it here."""
    served: _Served | None = None
    while is_running(daemon):
        served = served or _served(daemon, path)
        signal.sigtimedwait({wake}, _LOOK)
    # One that has ended in all its threads has closed its connection.
    while not has_ended(daemon):
        time.sleep(_ENDING)
        served = served or _served(daemon, path)
        if served is not None and not has_ended(daemon) and identity(served.connection) == served.identity:
            abort(served.connection)


def _served(daemon: Process, path: str) -> _Served | None:
    """The connection of what is mounted at a path; None while there is none, and where it is another process's, as far
    as the kernel tells."""
    connection = connection_of(path)
    found = None if connection is None else identity(connection)
    if connection is None or found is None or set(servers_of(connection)) - {daemon.tgid}:
        return None
    return _Served(connection, found)


def _leave_session(wake: signal.Signals) -> None:
    """Only the end of the daemon is to end its guard. wake: the signal that tells of it, to be waited for."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {wake})
    os.setsid()
    ignore_all_signals(but=wake)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.closerange(3, 256)
