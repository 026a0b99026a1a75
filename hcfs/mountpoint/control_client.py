"""Talk to a control file: a process of its own, since one that waits for a daemon that hangs can't be ended.

Run as a script, by its path: the argument is the control file's path, stdin the command, stdout the answer. Exit code 3
when the file can't be opened, with the errno on stdout. It ends with who started it, and so does its command.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

CANT_OPEN = 3

_PR_SET_PDEATHSIG = 1
_LOOKS = (0.002, 0.25)
"""Seconds between two looks for the answer: at first, and at most."""


def main(path: str) -> int:
    """Returns the exit code."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    command = sys.stdin.buffer.read()
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        print(error.errno)
        return CANT_OPEN
    with contextlib.suppress(OSError):  # the answer says why
        os.write(fd, command)
    pause, longest = _LOOKS
    while True:
        try:
            part = os.read(fd, 1 << 16)
        except BlockingIOError:
            time.sleep(pause)
            pause = min(2 * pause, longest)
            continue
        if not part:
            return 0
        sys.stdout.buffer.write(part)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
