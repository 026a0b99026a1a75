"""The table. A row is calls in a fresh directory, what ext4 answers, and what hcfs does where it differs, and why.

A row's function runs in a process of its own whose working directory is the fresh one, as root with umask 022, so it
uses relative paths and may change whatever belongs to a process. What it returns is compared.
"""

from __future__ import annotations

import ctypes
import errno
import os
import pickle
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_SYMLINK_NOFOLLOW = -100, 0x100
NOW, OMIT = -1, -2
ALICE, BOB = 1000, 2000
"""User and group ids of two who aren't root, and have no common group."""

Call = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    call: Call
    expected: Any
    hcfs: Any
    why: str
    """The reason of the difference; "" where there is none."""


ROWS: list[Row] = []
_SAME = object()


def row(expected: Any, *, hcfs: Any = _SAME, why: str = "") -> Callable[[Call], Call]:
    """Add the decorated function to the table. hcfs: its other answer, with the reason why."""
    assert (hcfs is _SAME) == (not why), "a difference has a reason"

    def add(call: Call) -> Call:
        room = call.__module__.rpartition(".")[2]
        ROWS.append(Row(f"{room}: {call.__name__}", call, expected, expected if hcfs is _SAME else hcfs, why))
        return call

    return add


def answer(call: Callable[..., Any], *words: Any, **more: Any) -> str:
    """The name of the errno that a call fails with, or `ok`."""
    try:
        call(*words, **more)
    except OSError as error:
        return "EOPNOTSUPP" if error.errno == errno.EOPNOTSUPP else errno.errorcode[error.errno or 0]
    return "ok"


def answers(*calls: tuple[Any, ...]) -> list[str]:
    """The answers of several calls, each (function, words ...)."""
    return [answer(*call) for call in calls]


def in_process(call: Call) -> Any:
    """Run in a child, and return or raise what it did."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                said = (True, call())
            except BaseException as error:
                said = (False, (error, traceback.format_exc()))
            with open(sending, "wb") as pipe:
                pipe.write(pickle.dumps(said))
        finally:
            os._exit(0)
    os.close(sending)
    with open(receiving, "rb") as pipe:
        word = pipe.read()
    os.waitpid(child, 0)
    good, value = pickle.loads(word) if word else (False, (ChildProcessError("it died"), ""))
    if good:
        return value
    raise value[0] from RuntimeError(value[1])


def as_user(user: int, call: Call, groups: Sequence[int] = ()) -> Any:
    """Run as another user, whose group has the same number, in a child; it stays in the working directory."""

    def work() -> Any:
        os.setgroups(list(groups))
        os.setgid(user)
        os.setuid(user)
        return call()

    return in_process(work)


def make(path: str | bytes, content: bytes = b"content", mode: int = 0o644) -> str | bytes:
    """A file with this content, closed, and published where that comes after close: other processes see it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    os.write(fd, content)
    os.close(fd)
    settle(path)
    return path


def settle(path: str | bytes) -> None:
    """Wait until another process sees the name, as RELEASE follows close by itself."""
    deadline = time.monotonic() + 10
    while not in_process(lambda: os.path.lexists(path)):
        if time.monotonic() > deadline:
            raise AssertionError(f"{path!r} isn't seen by another process, 10 s after it was closed")


def read(path: str | bytes) -> bytes:
    """The content, as another process reads it."""

    def load() -> bytes:
        with open(path, "rb") as file:
            return file.read()

    return in_process(load)


def mode_of(path: str) -> str:
    """Permissions in octal."""
    return f"{os.lstat(path).st_mode & 0o7777:o}"


def sleep_a_tick() -> None:
    """Longer than the kernel's granularity of times."""
    time.sleep(0.02)


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def utimens(path: str, atime: int, mtime: int, flags: int = 0) -> None:
    """utimensat(2): ns since 1970, NOW or OMIT."""
    special = {NOW: (1 << 30) - 1, OMIT: (1 << 30) - 2}
    times = (_Time * 2)(
        *(_Time(0, special[t]) if t in special else _Time(*divmod(t, 1_000_000_000)) for t in (atime, mtime))
    )
    _check(_libc.utimensat(AT_FDCWD, os.fsencode(path), times, flags), path)


def renameat2(old: str, new: str, flags: int) -> None:
    """rename with flags."""
    _check(_libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), ctypes.c_uint(flags)), old)


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    """fallocate(2) itself."""
    _check(_libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)), str(fd))


def _check(result: int, path: str) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
