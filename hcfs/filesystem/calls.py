"""What the filesystem's core is asked with and what it answers; pyfuse3's types stay in operations.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from hcfs.errors import HcfsError
from hcfs.store import Attributes

T = TypeVar("T")


class CallError(HcfsError):
    """A system call is refused with an errno; its text is the errno's, or says more where somebody will read it."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text or os.strerror(code))
        self.errno = code


class Caller(NamedTuple):
    """Who asks: what the kernel says with a request."""

    thread: int
    """Id of the calling thread in the daemon's pid namespace; 0 when the caller can't be seen from there."""
    uid: int
    gid: int


class Entry(NamedTuple):
    """The answer to a lookup or a change of attributes."""

    ino: int
    """0: there is no such name, and the kernel may keep that for `entry_timeout`."""
    attributes: Attributes | None
    """None only for an absent name."""
    entry_timeout: float
    """Seconds for which the kernel may answer lookups of the name by itself."""
    attr_timeout: float
    """Seconds for which the kernel may answer questions about attributes by itself."""


class Opened(NamedTuple):
    """The answer to an open."""

    handle: int
    keep_cache: bool = True
    """Whether pages from earlier opens are still right."""
    direct_io: bool = False
    """Whether reads go past the kernel's pages and ignore the size (virtual files)."""


Created = tuple[Entry, Opened]
"""The answer to a create."""


class Statfs(NamedTuple):
    """The answer to statfs; blocks are 4 KiB."""

    blocks: int
    free: int
    available: int
    """Free and evictable."""
    files: int
    files_free: int


@dataclass(frozen=True, slots=True)
class Blocking(Generic[T]):
    """The rest of an operation: it waits for I/O, so it must run in a thread that may wait."""

    run: Callable[[], T]
    origin: bool = False
    """Whether it waits for an origin, perhaps for minutes: such waits have threads of their own."""


@dataclass(frozen=True, slots=True)
class Awaiting:
    """Instead of an answer: what is asked for hasn't come from its origin yet, and may not for minutes. No thread is to
    wait for it; the same is asked again when there is something to answer."""

    call_back: Callable[[Callable[[], None]], None]
    """Takes a function, and calls it once, from any thread and perhaps at once. Memory only."""


def finish(answer: T | Blocking[T]) -> T:
    """Wait for the answer in this thread."""
    return answer.run() if isinstance(answer, Blocking) else answer
