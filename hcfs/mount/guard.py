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
from collections.abc import Callable

from hcfs.mount.client import connection_of
from hcfs.mount.process import Process, is_running

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_LOOK = 2.0
"""Seconds between looks, should the signal of the daemon's death be missed."""

_CONNECTIONS = "/sys/fs/fuse/connections"


def start_guard(path: str, daemon: Process) -> None:
    """Fork the guard of the mount that the calling process, `daemon`, is about to make at `path`. Call it before there
    are threads, and before files are open that mustn't outlive the daemon; from the main thread, which dies first."""
    if os.fork() == 0:
        try:
            _leave_session()
            _guard(daemon, lambda: connection_of(path))
        finally:
            os._exit(0)


def abort(connection: int) -> bool:
    """Make the kernel answer everything that waits for a daemon with an error. False when it can't be done."""
    try:
        with open(f"{_CONNECTIONS}/{connection}/abort", "w") as file:
            file.write("1")
    except OSError as error:
        log.info("FUSE connection %d isn't aborted: %s", connection, error.strerror)
        return False
    return True


def _guard(daemon: Process, find: Callable[[], int | None]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0)
    connection: int | None = None
    while is_running(daemon):
        connection = find() or connection
        signal.sigtimedwait({signal.SIGUSR1}, _LOOK)
    connection = find() if connection is None else connection
    if connection is not None and find() == connection:
        abort(connection)


def _leave_session() -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.closerange(3, 256)
