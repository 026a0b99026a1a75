"""Open files and directories: what a file handle's number stands for."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Iterator
from typing import Protocol

from hcfs.mount.answers import CallError
from hcfs.mount.control import Control, Later
from hcfs.mount.lockfiles import LockFile
from hcfs.mount.object_handle import ObjectHandle
from hcfs.mount.streaming import Stream
from hcfs.mount.versions import Version
from hcfs.store import Pin


class VersionHandle:
    """A version opened by its writer's process, or under a staging name by somebody who may see it."""

    __slots__ = ("used", "version", "writable")

    def __init__(self, version: Version, writable: bool) -> None:
        self.version = version
        self.writable = writable
        self.used = False
        """Something was written through it, or a descriptor of it closed. Neither, when its process was killed within
        the open: the kernel gives the handle back then, as it does after the last close."""


class StreamHandle:
    """A file of an origin, opened while it was on its way. What it reads is of one attempt at it."""

    __slots__ = ("direct", "stream")

    def __init__(self, stream: Stream, direct: bool) -> None:
        """direct: opened with O_DIRECT, so that none of its READs is the kernel's read-ahead."""
        self.stream = stream
        self.direct = direct


class LockHandle:
    """A lock file, which all processes share."""

    __slots__ = ("lock_file", "writable")

    def __init__(self, lock_file: LockFile, writable: bool) -> None:
        self.lock_file = lock_file
        self.writable = writable


class VirtualHandle:
    """A virtual file, as it was when it was opened."""

    __slots__ = ("content",)

    def __init__(self, content: bytes) -> None:
        self.content = content


class ControlHandle:
    """The control file, opened by an administrator: what is written is a command, what is read its answer. Offsets
    don't count, so that a shell's `exec 3<>` and `cat <&3` do."""

    __slots__ = ("_answer", "_control", "_later")

    def __init__(self, control: Control) -> None:
        self._control = control
        self._answer = b""
        self._later: Later | None = None

    def write(self, command: bytes) -> int:
        """Run a command, or begin it, and keep its answer in place of what is left of the last one's. Blocks. Raises
        CallError with the command's errno, when the answer says why; EBUSY while one that was begun isn't done."""
        if self._later is not None and self._later.answer is None:
            raise CallError(errno.EBUSY)
        self._answer = b""
        self._later = self._control.begin(command)
        if self._later is None:
            self._answer, code = self._control.execute(command)
            if code:
                raise CallError(code)
        return len(command)

    def read(self, length: int) -> bytes:
        """What comes next of the answer; nothing at its end. EAGAIN while the command isn't done."""
        if self._later is not None:
            answer = self._later.answer
            if answer is None:
                raise CallError(errno.EAGAIN)
            self._answer, self._later = answer, None
        part, self._answer = self._answer[:length], self._answer[length:]
        return part

    def close(self) -> None:
        """A command whose answer nobody can read any more is to end early."""
        if self._later is not None:
            self._later.stop()


class NameListing(Protocol):
    """Names in a directory, piece by piece."""

    def more(self) -> list[bytes]:
        """The next names; none at the end. Memory only."""


class DirectoryHandle:
    """A directory's entries: those that are known by inode when it is opened, then the names of committed objects,
    taken piece by piece as the listing comes to them: a directory of a million names isn't copied at once, and one that
    is opened for another purpose not at all. A name that is there all the while is met exactly once. What each is, is
    looked up when it is read. A pin lets the directory be asked for after its removal."""

    __slots__ = ("_known", "_listing", "_names", "_start", "fixed", "ino", "pin")

    def __init__(
        self,
        ino: int,
        parent: int,
        fixed: list[tuple[bytes, int]],
        pin: Pin | None = None,
        listing: Callable[[], NameListing] | None = None,
    ) -> None:
        """fixed: (name, inode). listing: begins one of the other names."""
        self.ino = ino
        self.fixed = [(b".", ino), (b"..", parent), *fixed]
        self.pin = pin
        self._start = listing
        self._listing: NameListing | None = None
        self._names: list[bytes] = []
        """as far as they were taken: positions behind the fixed ones count in here"""
        self._known: set[bytes] = set()

    def entries(self, start: int) -> Iterator[tuple[bytes, int, int]]:
        """(name, inode, position after it) from a position on; inode 0: whatever the name leads to. From 0 on it is a
        new listing, as rewinddir asks for it."""
        if self._start is not None and (start == 0 or self._listing is None):
            self._listing, self._names = self._start(), []
            self._known = {name for name, _ in self.fixed}
        for position in range(start, len(self.fixed)):
            yield *self.fixed[position], position + 1
        at = max(start - len(self.fixed), 0)
        while True:
            while at < len(self._names):
                name = self._names[at]
                at += 1
                if name not in self._known:
                    yield name, 0, len(self.fixed) + at
            more = self._listing.more() if self._listing is not None else []
            if not more:
                return
            self._names += more


Handle = ObjectHandle | StreamHandle | VersionHandle | LockHandle | VirtualHandle | ControlHandle | DirectoryHandle


class Handles:
    """The table of open handles. Thread-safe by the interpreter's own dictionary operations."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: dict[int, Handle] = {}

    def add(self, handle: Handle) -> int:
        """Number a handle; numbers aren't used again."""
        number = next(self._numbers)
        self._open[number] = handle
        return number

    def get(self, number: int) -> Handle:
        """The handle; EBADF when it isn't open."""
        try:
            return self._open[number]
        except KeyError:
            raise CallError(errno.EBADF) from None

    def directory(self, number: int) -> DirectoryHandle:
        """The directory's handle; EBADF when it isn't one."""
        handle = self.get(number)
        if not isinstance(handle, DirectoryHandle):
            raise CallError(errno.EBADF)
        return handle

    def pop(self, number: int) -> Handle | None:
        """Forget the handle; None when it isn't open."""
        return self._open.pop(number, None)

    def __len__(self) -> int:
        return len(self._open)
