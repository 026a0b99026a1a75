"""A thread that gives the mount up when the loop stands still: nothing else would end the calls that wait for it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from functools import partial

import trio

from hcfs.faults import attempt

log = logging.getLogger(__name__)

LOOK = 15.0
"""Seconds between looks."""

LIMIT = 60.0
"""Seconds in which the loop must answer: it never waits for I/O, so it takes milliseconds unless it is stuck."""


class Watchdog:
    """Asks the loop for a sign of life. Without one within LIMIT it calls `give_up`, which ends the kernel's side, and
    after another LIMIT it kills the process: a crash costs nothing that was acknowledged, and the device is free
    again."""

    def __init__(self, token: trio.lowlevel.TrioToken, give_up: Callable[[str], None]) -> None:
        self._token = token
        self._give_up = give_up
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hcfs-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more. Doesn't wait."""
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK):
            if self._answers() or self._stop.is_set():
                continue
            reason = f"the main loop has stood still for {LIMIT:g} s"
            attempt("giving the mount up", partial(self._give_up, reason))
            if not self._answers() and not self._stop.is_set():
                log.critical("the main loop still stands still; the daemon ends itself, as in a crash")
                logging.shutdown()
                os.kill(os.getpid(), signal.SIGKILL)
            return

    def _answers(self) -> bool:
        sign = threading.Event()
        try:
            self._token.run_sync_soon(sign.set)
        except trio.RunFinishedError:
            return True
        return sign.wait(LIMIT)
