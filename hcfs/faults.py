"""What becomes of an exception that nobody waits for: it is logged, with its traceback, and the daemon goes on.

Any class counts: what a library raises need be no Exception, as the panics of one that is written in Rust."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


def attempt(what: str, work: Callable[[], object]) -> bool:
    """Do something that others go on without; whether it was done. what: how the log calls it when it wasn't."""
    try:
        work()
    except BaseException:
        log.exception("%s failed unexpectedly", what)
        return False
    return True


def log_what_ends_threads() -> None:
    """A thread, or a callback of the interpreter, that ends by an exception says so in the log: a daemon has no
    stderr."""
    threading.excepthook = _ended
    sys.unraisablehook = _lost


def _ended(args: threading.ExceptHookArgs) -> None:
    name = "a thread" if args.thread is None else f"thread {args.thread.name}"
    log.critical("%s has ended unexpectedly", name, exc_info=args.exc_value or True)


def _lost(args: sys.UnraisableHookArgs) -> None:
    log.error("%s: %r", args.err_msg or "an exception was ignored", args.object, exc_info=args.exc_value or True)
