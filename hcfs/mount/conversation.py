"""Talk to a control file: a process of its own, since one that waits for a daemon that hangs can't be ended.

Run as a script, by its path: the argument is the control file's path, stdin the command, stdout the answer. Exit code 3
when the file can't be opened, with the errno on stdout.
"""

from __future__ import annotations

import contextlib
import os
import sys

CANT_OPEN = 3


def main(path: str) -> int:
    """Returns the exit code."""
    command = sys.stdin.buffer.read()
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        print(error.errno)
        return CANT_OPEN
    with contextlib.suppress(OSError):  # the answer says why
        os.write(fd, command)
    while part := os.read(fd, 1 << 16):
        sys.stdout.buffer.write(part)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
