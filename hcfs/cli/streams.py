"""Standard streams, whatever the caller made of them: closed, full, or a pipe that nobody reads any more."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from io import BufferedWriter, RawIOBase, StringIO, TextIOWrapper
from typing import TYPE_CHECKING, TextIO

from hcfs.errors import HcfsError

if TYPE_CHECKING:
    from typing_extensions import Buffer


class OutputLost(HcfsError):
    """Stdout doesn't take what a command has to say. `gone`: since its reader has left, as of `hcfs keys ... | head`.
    `raised`: it has ended the command, which had nothing else to do."""

    def __init__(self, code: int) -> None:
        self.errno = code
        self.gone = code == errno.EPIPE
        self.raised = False
        super().__init__(f"stdout can't be written: {os.strerror(self.errno)}; what was to be said there is lost")


class _Output(RawIOBase):
    """A descriptor that stops taking bytes at its first error, and loses the rest without a further word."""

    def __init__(self, fd: int, *, closed: bool, may_fail: Callable[[], bool]) -> None:
        """closed: the caller gave none, so that nothing can be written. may_fail: asked at the first error, whether
        that is raised as OutputLost."""
        super().__init__()
        self._fd = fd
        self._given = not closed
        self._may_fail = may_fail
        self.lost: OutputLost | None = None

    def write(self, data: Buffer, /) -> int:
        with memoryview(data) as view:
            if self.lost is not None:
                return view.nbytes
            try:
                if self._given:
                    return os.write(self._fd, view)
                self.lost = OutputLost(errno.EBADF)
            except OSError as error:
                self.lost = OutputLost(error.errno or errno.EIO)
            if self._may_fail():
                self.lost.raised = True
                raise self.lost
            return view.nbytes

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)


class Streams:
    """The streams of this process, from `take_over` on: no write to them fails but, where a command has nothing else to
    do, one to stdout."""

    def __init__(self, stdout: _Output) -> None:
        self._stdout = stdout

    @classmethod
    def take_over(cls, only_reports: Callable[[], bool]) -> Streams:
        """Put streams that bear everything in the place of sys.stdin, sys.stdout and sys.stderr. only_reports: whether
        what the command that runs now says is all that it has to give."""
        closed = _occupy()
        stdout = _Output(1, closed=1 in closed, may_fail=only_reports)
        stderr = _Output(2, closed=2 in closed, may_fail=lambda: False)
        sys.stdout, sys.stderr = _text(stdout, sys.stdout, stdout.isatty()), _text(stderr, sys.stderr, True)
        if 0 in closed:
            sys.stdin = StringIO()
        return cls(stdout)

    def lost(self) -> OutputLost | None:
        """What became of stdout, once everything is written to it."""
        with suppress(OutputLost):
            sys.stdout.flush()
        return self._stdout.lost


def _text(output: _Output, former: TextIO | None, by_line: bool) -> TextIO:
    # What the encoding lacks is escaped: no name ends a command.
    encoding = getattr(former, "encoding", "utf-8")
    return TextIOWrapper(BufferedWriter(output), encoding=encoding, errors="backslashreplace", line_buffering=by_line)


def _occupy() -> set[int]:
    """Those of the first three descriptors that were closed, and lead to /dev/null now: else the next file that is
    opened, a device perhaps, would be stdout to everybody."""
    closed = set[int]()
    for fd, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            # The lowest that is free. Programs that hcfs runs are to have it as well.
            os.set_inheritable(os.open(os.devnull, flags), True)
            closed.add(fd)
    return closed
