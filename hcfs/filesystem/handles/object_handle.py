"""A committed object that is open for reading."""

from __future__ import annotations

import errno

from hcfs.filesystem.calls import Blocking, CallError
from hcfs.filesystem.damage import Damage
from hcfs.filesystem.paths import Paths
from hcfs.store import Pin, Store


class ObjectReading:
    """What handles of committed objects read with."""

    __slots__ = ("damage", "granule", "paths", "store")

    def __init__(self, store: Store, damage: Damage, paths: Paths) -> None:
        self.store = store
        self.damage = damage
        self.paths = paths
        self.granule = store.superblock.granule


class ObjectHandle:
    """A Handle. Its pin keeps the content whatever happens to the name."""

    __slots__ = ("_bad", "_keeps", "_reading", "pin")

    def __init__(self, pin: Pin, reading: ObjectReading, keeps: object = None) -> None:
        """keeps: what is to stay known as long as this is open."""
        self.pin = pin
        self._reading = reading
        self._keeps = keeps
        self._bad: dict[int, int] = {}
        """Granules that didn't verify, and the errno of each: the kernel asks again for every page of one."""

    def read(self, offset: int, length: int) -> Blocking[memoryview | bytes]:
        return Blocking(lambda: self.read_now(offset, length))

    def read_now(self, offset: int, length: int) -> memoryview | bytes:
        """Verified bytes, short at the end of the object only; EIO where a granule is bad, counted once a handle.
        Blocks."""
        pin, reading = self.pin, self._reading
        length = min(length, pin.size - offset)
        if length <= 0:
            return b""
        if self._bad:
            granule = reading.granule
            for index in range(offset // granule, (offset + length - 1) // granule + 1):
                if index in self._bad:
                    raise CallError(self._bad[index])
        return reading.damage.watch(lambda: reading.store.read(pin, offset, length), self._bad)

    def write(self, offset: int, data: bytes | memoryview, *, drops_privileges: bool) -> int:
        """EBADF: it is open for reading only."""
        raise CallError(errno.EBADF)

    def flush(self) -> None:
        """Nothing was written through it."""

    def sync(self) -> None:
        """The same."""

    def release(self) -> None:
        self.pin.release()

    def path(self) -> bytes:
        return self._reading.paths.of(self.pin.oid)
