"""Roots of the exceptions that are the user's or the medium's fault; anything else is a bug and keeps its traceback."""

from __future__ import annotations

from errno import EINVAL, EIO


class HcfsError(Exception):
    """Something that the user or the medium did: its text is one sentence that names the thing, the reason and the
    remedy.

    Subclasses set `errno` and `exit_code` on the class, or on an instance where the condition varies.
    """

    errno: int = EIO
    """What a system call on the mount answers."""

    exit_code: int = 1
    """What the command line exits with."""


class UsageError(HcfsError):
    """A wrong argument, option or value."""

    errno = EINVAL
    exit_code = 2


class Unfinished(HcfsError):
    """What was asked for was begun, and others ended it before its end, or it couldn't be watched to its end."""

    exit_code = 3
