"""Processes, and how the kernel finds what their paths mean: walks, walks that are repeated at ESTALE, directories that
are locked meanwhile."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pyfuse3
import trio
from pyfuse3 import EntryAttributes

from hcfs.frontends.operations import Operations
from hcfs.store import ROOT_ID


def refusal(code: int) -> OSError:
    return OSError(code, os.strerror(code))


class Kernel:
    """What the processes of a mount share: who changes a directory has it alone, and looks up in it alone, too."""

    def __init__(self, operations: Operations) -> None:
        self.operations = operations
        self._directories: dict[int, trio.Lock] = {}

    @asynccontextmanager
    async def alone(self, *directories: int) -> AsyncIterator[None]:
        """Hold directories, which is the kernel's i_rwsem."""
        locks = [self._directories.setdefault(ino, trio.Lock()) for ino in sorted(set(directories))]
        for lock in locks:
            await lock.acquire()
        try:
            yield
        finally:
            for lock in locks:
                lock.release()


class Process:
    """A client: a real process, of which only the id is used."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(["sleep", "3600"])
        self.killed = False
        self.context: Any = SimpleNamespace(pid=self._process.pid, uid=0, gid=0, umask=0o22)

    def kill(self) -> None:
        """It dies; it is a process that died of a signal until `close`."""
        self.killed = True
        self._process.kill()
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    def close(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


async def at_once() -> None:
    """No pause."""


class _Asking:
    """The handlers, with a pause before each: what others ask may come first."""

    def __init__(self, operations: Operations, pause: Callable[[], Awaitable[None]]) -> None:
        self._operations, self._pause = operations, pause

    def __getattr__(self, name: str) -> Any:
        handler = getattr(self._operations, name)

        async def ask(*words: Any) -> Any:
            await self._pause()
            return await handler(*words)

        return ask


class Walks:
    """Of one process."""

    def __init__(self, kernel: Kernel, context: Any, pause: Callable[[], Awaitable[None]] = at_once) -> None:
        self.kernel, self.context = kernel, context
        self.ask = _Asking(kernel.operations, pause)
        self.inodes: dict[int, int] = {}
        """of open files, by handle"""

    # --- walks --------------------------------------------------------------------------------------------------------

    async def place(self, path: str) -> tuple[int, bytes]:
        """Directory's inode and name."""
        *directories, name = PurePosixPath(path).parts
        ino = ROOT_ID
        for directory in directories:
            async with self.kernel.alone(ino):
                entry = await self.ask.lookup(ino, os.fsencode(directory), self.context)
            if not entry.st_ino:
                raise refusal(errno.ENOENT)
            if not stat.S_ISDIR(entry.st_mode):
                raise refusal(errno.ENOTDIR)
            ino = entry.st_ino
        return ino, os.fsencode(name)

    async def find(self, parent: int, name: bytes) -> EntryAttributes:
        """ENOENT. The directory is held."""
        entry = await self.ask.lookup(parent, name, self.context)
        if not entry.st_ino:
            raise refusal(errno.ENOENT)
        return entry

    async def absent(self, parent: int, name: bytes) -> None:
        """EEXIST. The directory is held."""
        if (await self.ask.lookup(parent, name, self.context)).st_ino:
            raise refusal(errno.EEXIST)

    async def resolve(self, path: str) -> EntryAttributes:
        parent, name = await self.place(path)
        async with self.kernel.alone(parent):
            return await self.find(parent, name)

    async def repeated(self, call: Callable[[int], Any]) -> Any:
        """A call, with the number of its attempt; ESTALE makes the kernel repeat it once."""
        try:
            return await call(0)
        except (OSError, pyfuse3.FUSEError) as error:
            if error.errno != errno.ESTALE:
                raise
        return await call(1)
