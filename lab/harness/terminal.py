"""The hcfs command on a terminal: a pseudo-terminal of a size, what was drawn on it, and its modes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

_SIZES = ("COLUMNS", "LINES")
"""They would count for more than the terminal's own size."""


class Terminal:
    """One command on a terminal of its own, in a session of its own, so that keys reach it as signals."""

    def __init__(self, *args: str | Path, rows: int = 40, columns: int = 120) -> None:
        self._controller, self._terminal = pty.openpty()
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.modes_before = termios.tcgetattr(self._terminal)
        self.drawn = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hcfs", *(str(arg) for arg in args)],
            stdin=self._terminal,
            stdout=self._terminal,
            stderr=self._terminal,
            env={name: value for name, value in os.environ.items() if name not in _SIZES} | {"TERM": "xterm-256color"},
            preexec_fn=_take_terminal,
        )

    def until(self, text: str) -> None:
        """Read what is drawn until this has come."""
        self._read(lambda: text in self.drawn, f"{text!r}")

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._controller, keys.encode())

    def end(self) -> int:
        """The exit code of the command, which ends by itself."""
        self._read(lambda: self.process.poll() is not None, "the end of the command")
        self._take_what_is_there()
        return self.process.returncode

    @property
    def modes(self) -> list[object]:
        """Of the terminal, now."""
        return termios.tcgetattr(self._terminal)

    @property
    def screen(self) -> list[str]:
        """Lines of the picture that was drawn last, without colours."""
        last = self.drawn.rpartition("\x1b[?1049l")[0] or self.drawn
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", last.rpartition("\x1b[H")[2]).splitlines()

    def close(self) -> None:
        """End the command by force, if it still runs, and give the terminal back."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._controller)
        os.close(self._terminal)

    def _read(self, done: object, what: str) -> None:
        assert callable(done)
        deadline = time.monotonic() + 30
        while not done():
            assert time.monotonic() < deadline, f"{what} didn't come: {self.drawn[-2000:]!r}"
            self._take_what_is_there(0.05)

    def _take_what_is_there(self, patience: float = 0.0) -> None:
        while select.select([self._controller], [], [], patience)[0]:
            self.drawn += os.read(self._controller, 65536).decode(errors="replace")
            patience = 0.0


def _take_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
