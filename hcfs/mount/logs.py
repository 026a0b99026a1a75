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
import traceback
from contextlib import suppress
from io import TextIOWrapper

from hcfs.errors import HcfsError
from hcfs.printable import printable

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
    """A log that others than its owner and group can't read, also when it is made anew after it was moved; one that is
    there keeps its mode."""

    def _open(self) -> TextIOWrapper:
        fd = _open_private(self.baseFilename)
        return open(fd, "a", encoding=self.encoding, errors=self.errors)


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
    if isinstance(handler, logging.StreamHandler):
        # kill -USR2 shows where every thread of a daemon that hangs is.
        faulthandler.register(signal.SIGUSR2, handler.stream, all_threads=True)


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
    """pyfuse3 reports as errors the answers that nobody waits for any more: to a connection that is gone."""
    text = record.getMessage()
    return not (
        "fuse_reply_* failed" in text
        and text.endswith(("No such file or directory", "No such device", "not connected"))
    )
