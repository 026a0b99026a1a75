"""Lock files: names ending in `.lock` are never staged, all processes share one inode and write it in place.

flock and O_EXCL between processes work on them for that reason, which versions would break.
"""

from __future__ import annotations

import logging
import threading

from hcfs.cache import Cache
from hcfs.errors import HcfsError
from hcfs.filesystem.background import Background
from hcfs.store import Attributes, Pin, Staged, Store
from hcfs.store.accounts import Account
from hcfs.store.errors import NoSuchObject

log = logging.getLogger(__name__)

SUFFIX = b".lock"


def is_lock_name(name: bytes) -> bool:
    """Whether the name is a lock file's."""
    return name.endswith(SUFFIX)


class LockFile:
    """One open lock file. Reads and writes block, and are one after the other: a lock file holds a pid or nothing.

    What is written is seen by all processes at once, and is the durable content of the object when a writer has closed.
    """

    def __init__(self, store: Store, oid: int, account: Account) -> None:
        """account: that what is written counts for. NoSuchObject when the object is gone."""
        self._store = store
        self._mutex = threading.Lock()
        """Held across its own I/O; no other lock is taken before it, and calls that may not wait don't take it."""
        self._pin: Pin = store.pin(oid)
        self._account = account
        self._namespace = store.namespace_of(oid)
        self._staged: Staged | None = None
        self._changes = 0
        """Writes and truncations so far..."""
        self._durable_changes = 0
        """...and how many of them are on the medium."""
        self.oid = oid
        self.handles = 0
        """Guarded by the filesystem's lock."""

    @property
    def dirty(self) -> bool:
        """Whether it was written since it was settled last."""
        return self._staged is not None

    @property
    def unsaved(self) -> bool:
        """Whether anything that was written isn't durable yet."""
        return self._changes != self._durable_changes

    def attributes(self) -> Attributes:
        """The present ones; never waits."""
        staged = self._staged
        committed = self._store.attributes(self.oid)
        if staged is None:
            return committed
        written = staged.attributes()
        return committed._replace(size=written.size, blocks=written.blocks, mtime_ns=written.mtime_ns)

    def read(self, offset: int, length: int) -> memoryview | bytes:
        """Short at the end of the file only."""
        with self._mutex:
            if self._staged is not None:
                return self._staged.read(offset, length)
            return self._store.read(self._pin, offset, length)

    def write(self, offset: int, data: bytes | memoryview) -> int:
        """All of it, or an error and the content as it was settled last; EFBIG changes nothing."""
        self._store.require_possible_size(offset + len(data))
        with self._mutex:
            try:
                self._changes += 1
                return self._in_place().write(offset, data)
            except BaseException:
                self._give_up()
                raise

    def truncate(self, size: int) -> None:
        """Cut or extend with zeros. As `write`."""
        self._store.require_possible_size(size)
        with self._mutex:
            try:
                self._changes += 1
                self._in_place().truncate(size)
            except BaseException:
                self._give_up()
                raise

    def save(self) -> None:
        """Settle, and make that durable; blocks for a commit. Nothing for an unlinked file, which no restart finds."""
        with self._mutex:
            changes = self._changes
        self.settle()
        if not self._store.is_current(self.oid):
            return
        # Without the mutex: who reads or writes it meanwhile needn't wait for the medium.
        self._store.commit()
        with self._mutex:
            self._durable_changes = max(self._durable_changes, changes)

    def settle(self) -> None:
        """Make what was written the object's content. An unlinked file's stays with its open handles."""
        with self._mutex:
            staged = self._staged
            if staged is None or not self._store.is_current(self.oid):
                return
            try:
                staged.seal()
                self._store.publish_in_place(staged)
            except BaseException:
                self._give_up()
                raise
            former, self._pin = self._pin, self._store.pin(self.oid)
            self._staged = None
            former.release()

    def close(self) -> None:
        """After the last handle: what wasn't settled is lost."""
        with self._mutex:
            self._give_up()
            self._pin.release()

    def _in_place(self) -> Staged:
        if self._staged is None:
            try:
                self._staged = self._store.stage_in_place(self.oid)
                self._store.assign(self._staged, self._account)
            except NoSuchObject:
                # Unlinked: what is written now is for the open handles alone.
                self._staged = self._store.stage(None, namespace=self._namespace, mode=0, uid=0, gid=0)
                self._store.assign(self._staged, self._account)
                self._staged.write(0, self._store.read(self._pin, 0, self._pin.size))
        return self._staged

    def _give_up(self) -> None:
        staged, self._staged = self._staged, None
        if staged is not None:
            staged.abandon()


class LockFiles:
    """The lock files that are open, by object. The filesystem's lock guards the register and the counts of handles."""

    def __init__(self, store: Store, cache: Cache, lock: threading.RLock, background: Background) -> None:
        self._store = store
        self._cache = cache
        self._lock = lock
        self._background = background
        self._open: dict[int, LockFile] = {}

    def __contains__(self, oid: int) -> bool:
        return oid in self._open

    def __len__(self) -> int:
        return len(self._open)

    def get(self, oid: int) -> LockFile | None:
        """The open lock file of an object, if it is one. Lock held."""
        return self._open.get(oid)

    def is_one(self, oid: int) -> bool:
        """Whether an object is a lock file: open as one, or named so. Lock held."""
        return oid in self._open or any(is_lock_name(name) for _, name in self._store.names_of(oid))

    def hold(self, oid: int) -> LockFile:
        """The lock file of an object, with one handle more. Lock held."""
        lock_file = self._open.get(oid)
        if lock_file is None:
            account = self._cache.account(self._store.namespace_of(oid), b"")
            lock_file = self._open[oid] = LockFile(self._store, oid, account)
        lock_file.handles += 1
        return lock_file

    def let_go(self, lock_file: LockFile) -> None:
        """One handle less. What is left to write after the last one is written in the background. Lock not held."""
        with self._lock:
            lock_file.handles -= 1
            if lock_file.handles:
                return
            if not lock_file.dirty:
                del self._open[lock_file.oid]
                lock_file.close()
                return
        self._background.run(lambda: self._finish(lock_file))

    def _finish(self, lock_file: LockFile) -> None:
        try:
            lock_file.settle()
        except HcfsError as error:
            log.warning("what was written last to lock file %d can't be kept: %s", lock_file.oid, error)
        finally:
            with self._lock:
                if not lock_file.handles:
                    self._open.pop(lock_file.oid, None)
                    lock_file.close()
