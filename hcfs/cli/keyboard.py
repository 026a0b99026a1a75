"""Single keys from a terminal, while something else is drawn on it."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class Keyboard:
    """Keys that were pressed, as they come."""

    def __init__(self, fd: int | None) -> None:
        """fd: of a terminal without line editing; None: there is no keyboard."""
        self._fd = fd

    def wait(self, seconds: float, key: bytes) -> bool:
        """Whether the key was pressed within so many seconds; blocks until then."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self._fd is None:
                time.sleep(left)
            elif select.select([self._fd], [], [], left)[0]:
                pressed = os.read(self._fd, 64)
                if key in pressed:
                    return True
                if not pressed:  # the terminal is gone
                    self._fd = None
        return False


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """The keyboard of a terminal on stdin, which gets its modes back at the end, and also when SIGTERM or SIGHUP comes:
    they end the program by SystemExit here. Ctrl-C stays an interrupt; Ctrl-Z does nothing, since the shell would find
    the terminal as it is drawn on now."""
    signals = (signal.SIGTERM, signal.SIGHUP)
    former = [signal.signal(number, _end) for number in signals]
    try:
        if not sys.stdin.isatty():
            yield Keyboard(None)
            return
        fd = sys.stdin.fileno()
        modes = termios.tcgetattr(fd)
        try:
            tty.setcbreak(fd, termios.TCSANOW)  # what was typed already counts
            quiet = termios.tcgetattr(fd)
            quiet[6][termios.VSUSP] = os.fpathconf(fd, "PC_VDISABLE").to_bytes(1)
            termios.tcsetattr(fd, termios.TCSANOW, quiet)
            yield Keyboard(fd)
        finally:
            termios.tcsetattr(fd, termios.TCSADRAIN, modes)
    finally:
        for number, handler in zip(signals, former, strict=True):
            signal.signal(number, handler)


def _end(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)
