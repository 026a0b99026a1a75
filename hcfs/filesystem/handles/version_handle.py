"""A version that is open: to its writer's process, or under a staging name to whoever may see it."""

from __future__ import annotations

import errno

from hcfs.errors import HcfsError
from hcfs.filesystem.calls import Blocking, CallError
from hcfs.filesystem.damage import Damage
from hcfs.filesystem.modes import drop_privileges
from hcfs.filesystem.paths import Paths
from hcfs.filesystem.versions.closing import Closings
from hcfs.filesystem.versions.publisher import Publisher
from hcfs.filesystem.versions.version import Fate, Version
from hcfs.filesystem.volume import Volume


class VersionAccess:
    """What handles of versions read, write and close with."""

    __slots__ = ("closings", "damage", "lock", "paths", "publisher", "store")

    def __init__(self, volume: Volume, publisher: Publisher, closings: Closings, damage: Damage, paths: Paths) -> None:
        self.store = volume.store
        self.lock = volume.lock
        self.publisher = publisher
        self.closings = closings
        self.damage = damage
        self.paths = paths


class VersionHandle:
    """A Handle."""

    __slots__ = ("_access", "_used", "version", "writable")

    def __init__(self, version: Version, access: VersionAccess, *, writable: bool) -> None:
        self.version = version
        self.writable = writable
        self._access = access
        self._used = False
        """Something was written through it, or a descriptor of it closed. Neither, when its process was killed within
        the open: the kernel gives the handle back then, as it does after the last close."""

    def read(self, offset: int, length: int) -> Blocking[memoryview | bytes]:
        return Blocking(lambda: self._access.damage.watch(lambda: self._read(offset, length)))

    def _read(self, offset: int, length: int) -> memoryview | bytes:
        version, store = self.version, self._access.store
        if version.fate is Fate.ABANDONED or version.failed:
            raise CallError(errno.EIO)
        pin = version.pin
        if pin is None:
            try:
                return version.staged.read(offset, length)
            except HcfsError:
                # It may have been published since, or is just being: who does that holds the lock until the pin is
                # there.
                with self._access.lock:
                    pin = version.pin
                if pin is None:
                    raise
        return store.read(pin, offset, length)

    def write(self, offset: int, data: bytes | memoryview, *, drops_privileges: bool) -> int:
        """After an error the version is never published, but for EFBIG, which changes nothing. EIO on one that is
        published."""
        if not self.writable:
            raise CallError(errno.EBADF)
        version = self.version
        self._used = True
        self._access.publisher.require_possible(version, offset + len(data))
        with self._access.publisher.change(version):
            if drops_privileges:
                with self._access.lock:
                    drop_privileges(version.staged)
            return version.staged.write(offset, data)

    def flush(self) -> Blocking[None] | None:
        """Blocking while it seals; it doesn't wait for writes under way."""
        if not self.writable:
            return None
        self._used = True
        return self._access.closings.of(self.version).flush(self.version)

    def sync(self) -> None:
        """Its content is on the medium, and durable only in that sense: it is lost with the daemon unless it is
        published."""
        version = self.version
        if version.failed:
            raise CallError(version.failed)
        if version.is_staged and version.modified:
            self._access.publisher.seal(version, as_flush=False)

    def release(self) -> None:
        """For the last writer of a version this publishes."""
        with self._access.lock:
            self._access.closings.let_go(self.version, writer=self.writable, used=self._used)

    def path(self) -> bytes:
        return self._access.paths.of(self.version.ino)
