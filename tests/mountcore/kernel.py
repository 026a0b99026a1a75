"""The kernel's part, played in one thread: walks repeated at ESTALE, opens, closes, and the notices that it gets."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from hcfs.cache import Cache
from hcfs.device import BufferPool, MemoryDevice
from hcfs.device.protocol import BlockDevice
from hcfs.errors import HcfsError
from hcfs.filesystem.calls import Caller, Entry, finish
from hcfs.filesystem.filesystem import Filesystem
from hcfs.filesystem.operations.attribute_changes import Changes
from hcfs.store import ROOT_ID, Store, UnrecoveredStore, format_device

GRANULE = 64 << 10
ENTRY_TIMEOUT = 30.0


def errno_of(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The symbolic errno that the call is refused with, or "ok"."""
    try:
        finish(call(*args, **kwargs))
    except HcfsError as error:
        return errno.errorcode[error.errno]
    return "ok"


class Notices:
    """What the kernel was told."""

    def __init__(self) -> None:
        self.names: list[tuple[int, bytes]] = []
        self.attributes: list[int] = []
        self.pages: list[int] = []

    def forget_name(self, parent: int, name: bytes) -> None:
        self.names.append((parent, name))

    def forget_names_now(self, names: Iterable[tuple[int, bytes]]) -> None:
        self.names += names

    def forget_attributes(self, ino: int) -> None:
        self.attributes.append(ino)

    def forget_pages(self, ino: int) -> None:
        self.pages.append(ino)


class Rig:
    """A filesystem over a store in memory. `now` is its clock."""

    def __init__(
        self,
        device: BlockDevice | None = None,
        size: int = 48 << 20,
        sleep: Callable[[float], None] = time.sleep,
        **settings: Any,
    ) -> None:
        self.now = 1000.0
        self.device = device if device is not None else MemoryDevice(size)
        if device is None:
            format_device(self.device, granule=GRANULE, max_objects=4096)
        self.store: Store = UnrecoveredStore.open(self.device, BufferPool(16 << 20)).recover()
        self.notices = Notices()
        self.cache = Cache(
            self.store,
            lookup_grace_s=0,
            entry_timeout_s=ENTRY_TIMEOUT,
            on_evicted=lambda names: self.notices.forget_names_now(names),
            clock=self._clock,
            sleep=sleep,
        )
        self.fs = Filesystem(
            self.store, self.cache, self.notices, entry_timeout=ENTRY_TIMEOUT, clock=self._clock, **settings
        )
        self.kv = self.store.lookup(ROOT_ID, b"kv") or self.store.mkdir(ROOT_ID, b"kv", 0o755, 0, 0)

    def _clock(self) -> float:
        """No two moments are the same."""
        self.now += 1e-6
        return self.now

    def crash(self) -> Rig:
        """The next mount, after this one's daemon was killed now."""
        self.fs.close()
        return Rig(self.device)

    def proc(self, thread: int | None = None, uid: int = 0, gid: int = 0) -> Process:
        """A client: this very process, unless another one's id is given; 0 is one that can't be seen."""
        return Process(self, Caller(os.getpid() if thread is None else thread, uid, gid))

    def usage_is_whole(self) -> None:
        """Every byte is accounted for."""
        usage = self.store.usage()
        assert usage.used + usage.free + usage.staged + usage.pending + usage.quarantined == usage.capacity


class Process:
    """System calls of one client, as the kernel turns them into requests."""

    def __init__(self, rig: Rig, caller: Caller) -> None:
        self.rig = rig
        self.fs = rig.fs
        self.caller = caller

    def lookup(self, name: bytes, parent: int | None = None) -> Entry:
        return self.fs.lookup(self.rig.kv if parent is None else parent, name, self.caller)

    def stat(self, name: bytes, parent: int | None = None) -> Any:
        """Attributes; ENOENT."""
        entry = self.lookup(name, parent)
        if entry.attributes is None:
            raise FileNotFoundError(name)
        return entry.attributes

    def exists(self, name: bytes, parent: int | None = None) -> bool:
        return self.lookup(name, parent).ino != 0

    def open(self, name: bytes, flags: int = os.O_RDONLY, mode: int = 0o644, parent: int | None = None) -> int:
        """open(2): a walk, and a second one with fresh lookups when the first met ESTALE."""
        where = self.rig.kv if parent is None else parent
        for attempt in range(2):
            try:
                return self._open_once(where, name, flags, mode, attempt)
            except HcfsError as error:
                if error.errno != errno.ESTALE or attempt:
                    raise OSError(error.errno, os.strerror(error.errno)) from error
        raise AssertionError

    def _open_once(self, parent: int, name: bytes, flags: int, mode: int, attempt: int) -> int:
        for _ in range(attempt + 1):  # a repeated walk finds another inode, so the kernel asks twice
            entry = self.fs.lookup(parent, name, self.caller)
        if entry.ino and flags & os.O_CREAT and flags & os.O_EXCL:
            raise OSError(errno.EEXIST, "exists")
        if entry.ino:
            return finish(self.fs.open(entry.ino, flags & ~(os.O_CREAT | os.O_EXCL), self.caller)).handle
        if not flags & os.O_CREAT:
            raise OSError(errno.ENOENT, "no such file")
        return self.fs.create(parent, name, mode, flags, self.caller)[1].handle

    def write(self, handle: int, data: bytes, offset: int = 0) -> int:
        return self.fs.write(handle, offset, data)

    def read(self, handle: int, length: int = 1 << 20, offset: int = 0) -> bytes:
        return bytes(finish(self.fs.read(handle, offset, length)))

    def flush(self, handle: int) -> None:
        """What close() of one of several descriptors is."""
        finish(self.fs.flush(handle))

    def close(self, handle: int) -> None:
        """close() of the last descriptor: FLUSH, whose error it returns, and RELEASE."""
        try:
            self.flush(handle)
        finally:
            self.fs.release(handle)

    def put(self, name: bytes, data: bytes, flags: int = 0) -> int:
        """Write a whole file; its inode."""
        handle = self.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flags)
        self.write(handle, data)
        ino = self.lookup(name).ino
        self.close(handle)
        return ino

    def load(self, name: bytes) -> bytes:
        handle = self.open(name)
        try:
            return self.read(handle, 64 << 20)
        finally:
            self.close(handle)

    def rename(self, old: bytes, new: bytes, flags: int = 0, parent: int | None = None) -> None:
        finish(self.fs.rename(self.rig.kv, old, self.rig.kv if parent is None else parent, new, flags, self.caller))

    def link(self, old: bytes, new: bytes) -> Entry:
        return self.fs.link(self.lookup(old).ino, self.rig.kv, new, self.caller)

    def unlink(self, name: bytes) -> None:
        self.fs.unlink(self.rig.kv, name, self.caller)

    def truncate(self, name: bytes, size: int) -> None:
        """truncate(2): by path, with a second walk after ESTALE."""
        for attempt in range(2):
            entry = self.lookup(name)
            try:
                finish(self.fs.setattr(entry.ino, Changes(size=size), None, self.caller))
            except HcfsError as error:
                if error.errno != errno.ESTALE or attempt:
                    raise
            else:
                return

    def list(self, directory: int | None = None) -> dict[bytes, Entry]:
        """Entries of a directory but for the dots."""
        handle = self.fs.opendir(self.rig.kv if directory is None else directory, self.caller).handle
        try:
            found = {name: entry for name, entry, _ in self.fs.readdir(handle, 0)}
        finally:
            self.fs.release(handle)
        assert found.pop(b".").ino == (self.rig.kv if directory is None else directory)
        assert b".." in found
        del found[b".."]
        return found


@contextmanager
def other_process() -> Iterator[subprocess.Popen[bytes]]:
    """A living process that isn't this one."""
    process = subprocess.Popen(["sleep", "600"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def eventually(condition: Callable[[], Any], what: str, timeout: float = 10.0) -> None:
    """Poll for what happens in the background."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(0.005)
