"""The daemon's log: one line an event, with its level's name."""

from __future__ import annotations

import faulthandler
import logging
import logging.handlers
import os
import re
import signal
import stat
import sys
import threading
import traceback
from contextlib import nullcontext, suppress
from io import TextIOWrapper

from hcfs.errors import HcfsError
from hcfs.faults import attempt
from hcfs.printable import printable

_STACKS_WAIT = 1.0
"""Seconds for whoever is just writing to the log, and may be what hangs."""

MODE = 0o640
"""Of log files that are made here: they have paths of the tenants' files."""

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def default_log(directory: str) -> str:
    """Where the log of the mount at `directory` goes unless it is told: /var/log/hcfs for root, the user's state
    directory for others."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", directory).strip("-") or "root"
    if os.geteuid() == 0:
        return f"/var/log/hcfs/{name}.log"
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "hcfs", f"{name}.log")


class LogFile(logging.handlers.WatchedFileHandler):
    """Appends to a file, also after logrotate moved it. Others than its owner and group can't read it, also when it is
    made anew; one that is there keeps its mode. A file that can't be written any more costs the lines, and never those
    who log."""

    def _open(self) -> TextIOWrapper:
        fd = _open_private(self.baseFilename)
        return open(fd, "a", encoding=self.encoding, errors=self.errors)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; where that fails it is lost."""
        try:
            super().emit(record)
        except Exception:
            self.handleError(record)

    def reopen(self) -> None:
        """Go on in the file that has the name now, made if it is absent. OSError, with the former one still open, when
        it can't be opened."""
        with self.lock or nullcontext():
            former, self.stream = self.stream, self._open()
            self._statstream()
        if former is not None:
            former.close()


def _open_private(path: str) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    with suppress(FileExistsError):
        fd = os.open(path, flags | os.O_EXCL, MODE)
        os.fchmod(fd, MODE)  # whatever the umask
        return fd
    return os.open(path, flags, MODE)


def open_log(path: str) -> logging.Handler:
    """A handler that appends to a file, also after logrotate moved it. HcfsError when it can't be written, or holds
    what is no text: somebody's data, an image perhaps."""
    try:
        if _holds_data(path):
            raise HcfsError(
                f"{path} is no log, but holds data, to which nothing is added; name another file with --log"
            )
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        return LogFile(path, errors="backslashreplace")
    except OSError as error:
        raise HcfsError(f"the log {path} can't be written: {error.strerror}; name another file with --log") from error


def _holds_data(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            return stat.S_ISBLK(mode)
        with open(path, "rb") as file:
            return b"\0" in file.read(4096)
    except OSError:  # absent, or to be told by whoever opens it to write
        return False


def log_to(handler: logging.Handler) -> None:
    """Send everything from INFO on to this handler and no other."""
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.addFilter(_in_one_line)
    root = logging.getLogger()
    for former in list(root.handlers):
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.getLogger("pyfuse3").addFilter(_without_lost_answers)


def has_file() -> bool:
    """Whether the log is a file."""
    return any(isinstance(handler, LogFile) for handler in logging.getLogger().handlers)


def reopen() -> None:
    """Go on in the file that has the log's name now. OSError when it can't be opened; the log stays where it was."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogFile):
            handler.reopen()


def show_stacks_when_told() -> None:
    """From now on kill -USR2 shows in the log where every thread of a daemon that hangs is. In the main thread, while
    there is no other: all have the signal blocked then, but for one that waits for it.

    faulthandler's own handler of a signal looks at the threads while they run, and was seen to crash the daemon; who
    waits for a signal looks at them while it holds the interpreter's lock."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    threading.Thread(target=_wait_to_show_stacks, name="hcfs-stacks", daemon=True).start()


def _wait_to_show_stacks() -> None:
    while True:
        signal.sigwait({signal.SIGUSR2})
        attempt("showing the threads' stacks", _show_stacks)


def _show_stacks() -> None:
    for handler in logging.getLogger().handlers:
        if not isinstance(handler, logging.StreamHandler):
            continue
        held = handler.lock is None or handler.lock.acquire(timeout=_STACKS_WAIT)
        try:
            if handler.stream is not None:
                handler.flush()
                faulthandler.dump_traceback(handler.stream, all_threads=True)
        finally:
            if held and handler.lock is not None:
                handler.lock.release()


def stderr_handler() -> logging.Handler:
    """For a daemon in the foreground."""
    return logging.StreamHandler(sys.stderr)


def _in_one_line(record: logging.LogRecord) -> bool:
    """Names are in messages as their owners chose them: none begins a line of the log, or steers the terminal that it
    is read on. A traceback has lines of its own, and all but its first are indented."""
    record.msg, record.args = printable(record.getMessage()), None
    if record.exc_info and record.exc_info[1] is not None:
        first, *others = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n").split("\n")
        record.exc_text = "\n".join([printable(first), *(f"  {printable(each)}" for each in others)])
    return True


def _without_lost_answers(record: logging.LogRecord) -> bool:
    """All but what pyfuse3 reports as errors: answers that nobody waits for any more, to a connection that is gone."""
    text = record.getMessage()
    return not (
        "fuse_reply_* failed" in text
        and text.endswith(("No such file or directory", "No such device", "not connected"))
    )
