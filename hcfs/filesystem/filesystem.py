"""The filesystem as its front ends see it: each call goes to the place that its inode is in, or to the open handle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from hcfs.cache import Cache
from hcfs.filesystem.calls import Awaiting, Blocking, Caller, Created, Entry, Opened, Statfs
from hcfs.filesystem.handles.table import Content
from hcfs.filesystem.kernel_caches import KernelCaches
from hcfs.filesystem.operations.attribute_changes import Changes
from hcfs.filesystem.parts import Parts
from hcfs.filesystem.volume import Volume
from hcfs.store import Store

T = TypeVar("T")


class Filesystem:
    """What pyfuse3's operations call, and whatever else serves the kernel's requests. It decides nothing.

    Every method may be called from any thread. Those that return Blocking, and read, write and fsync, wait for I/O; the
    others answer from memory. Refusals are HcfsError with an errno; anything else that is raised is a bug.
    """

    def __init__(
        self,
        store: Store,
        cache: Cache,
        kernel: KernelCaches,
        *,
        entry_timeout: float,
        staging_ttl: float = 600.0,
        read_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """entry_timeout: seconds for which the kernel may answer for committed and for absent names. staging_ttl:
        seconds for which a closed version waits for its rename."""
        self.volume = Volume(store, cache, kernel, read_only=read_only, clock=clock)
        self.parts = Parts(self.volume, entry_timeout=entry_timeout, staging_ttl=staging_ttl)
        self._places = self.parts.places
        self.handles = self.parts.handles

    def close(self) -> None:
        """Wait for what runs in the background; no operation may follow."""
        self.volume.background.close()

    def with_room(self, make: Callable[[], T | Blocking[T]]) -> T | Blocking[T]:
        """As Volume.with_room."""
        return self.volume.with_room(make)

    # --- by inode, or by name ----------------------------------------------------------------------------------------

    def lookup(self, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        return self._places.of(parent).lookup(parent, name, caller)

    def getattr(self, ino: int) -> Entry:
        return self._places.of(ino).getattr(ino)

    def readlink(self, ino: int) -> bytes:
        return self._places.of(ino).readlink(ino)

    def setattr(self, ino: int, changes: Changes, number: int | None, caller: Caller) -> Entry | Blocking[Entry]:
        return self._places.of(ino).setattr(ino, changes, number, caller)

    def open(self, ino: int, flags: int, caller: Caller) -> Opened | Blocking[Opened]:
        return self._places.of(ino).open(ino, flags, caller)

    def create(self, parent: int, name: bytes, mode: int, flags: int, caller: Caller) -> Created:
        return self._places.of(parent).create(parent, name, mode, flags, caller)

    def opendir(self, ino: int, caller: Caller) -> Opened:
        return self._places.of(ino).opendir(ino, caller)

    def mkdir(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        return self._places.of(parent).mkdir(parent, name, mode, caller)

    def symlink(self, parent: int, name: bytes, target: bytes, caller: Caller) -> Entry:
        return self._places.of(parent).symlink(parent, name, target, caller)

    def mknod(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        return self._places.of(parent).mknod(parent, name, mode, caller)

    def unlink(self, parent: int, name: bytes, caller: Caller) -> Blocking[None] | None:
        return self._places.of(parent).unlink(parent, name, caller)

    def rmdir(self, parent: int, name: bytes) -> None:
        self._places.of(parent).rmdir(parent, name)

    def link(self, ino: int, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        return self._places.of(parent).link(ino, parent, name, caller)

    def rename(
        self, old_parent: int, old_name: bytes, parent: int, name: bytes, flags: int, caller: Caller
    ) -> Blocking[None] | None:
        place = self._places.of_rename(old_parent, parent)
        return place.rename(old_parent, old_name, parent, name, flags, caller)

    def getxattr(self, ino: int, name: bytes) -> bytes | Blocking[bytes]:
        return self._places.of(ino).getxattr(ino, name)

    def listxattr(self, ino: int) -> list[bytes]:
        return self._places.of(ino).listxattr(ino)

    def setxattr(self, ino: int, name: bytes, value: bytes, caller: Caller) -> None:
        self._places.of(ino).setxattr(ino, name, value, caller)

    def removexattr(self, ino: int, name: bytes, caller: Caller) -> None:
        self._places.of(ino).removexattr(ino, name, caller)

    def statfs(self) -> Statfs:
        """Of the whole device."""
        return self.parts.capacity.space()

    # --- by handle ---------------------------------------------------------------------------------------------------

    def read(self, number: int, offset: int, length: int) -> Content | Blocking[Content] | Awaiting:
        return self.handles.get(number).read(offset, length)

    def write(self, number: int, offset: int, data: bytes | memoryview, *, drops_privileges: bool = False) -> int:
        return self.handles.get(number).write(offset, data, drops_privileges=drops_privileges)

    def flush(self, number: int) -> Blocking[None] | None:
        return self.handles.get(number).flush()

    def fsync(self, number: int) -> None:
        """Make everything visible durable. Blocks."""
        self.handles.get(number).sync()
        self.volume.make_durable()

    def release(self, number: int) -> None:
        self.handles.release(number)

    def begin_listing(self, number: int) -> Blocking[None] | None:
        return self.handles.directory(number).begin()

    def readdir(self, number: int, start: int) -> Iterator[tuple[bytes, Entry, int]]:
        return self.handles.directory(number).list(start)

    # --- for the log -------------------------------------------------------------------------------------------------

    def path_of(self, ino: int) -> bytes:
        return self.parts.paths.of(ino)

    def path_of_handle(self, number: int) -> bytes:
        return self.handles.path(number)
