"""A lock file that is open."""

from __future__ import annotations

from hcfs.filesystem.calls import Blocking
from hcfs.filesystem.damage import Damage
from hcfs.filesystem.lock_files import LockFile, LockFiles
from hcfs.filesystem.paths import Paths


class LockHandle:
    """A Handle of a file that all processes share."""

    __slots__ = ("_damage", "_lock_file", "_lock_files", "_paths", "_writable")

    def __init__(
        self, lock_file: LockFile, lock_files: LockFiles, damage: Damage, paths: Paths, *, writable: bool
    ) -> None:
        self._lock_file = lock_file
        self._lock_files = lock_files
        self._damage = damage
        self._paths = paths
        self._writable = writable

    def read(self, offset: int, length: int) -> Blocking[memoryview | bytes]:
        return Blocking(lambda: self._damage.watch(lambda: self._lock_file.read(offset, length)))

    def write(self, offset: int, data: bytes | memoryview, *, drops_privileges: bool) -> int:
        return self._lock_file.write(offset, data)

    def flush(self) -> Blocking[None] | None:
        if self._writable and self._lock_file.unsaved:
            return Blocking(self._lock_file.save)
        return None

    def sync(self) -> None:
        self._lock_file.save()

    def release(self) -> None:
        self._lock_files.let_go(self._lock_file)

    def path(self) -> bytes:
        return self._paths.of(self._lock_file.oid)
