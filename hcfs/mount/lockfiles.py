"""Lock files: names ending in `.lock` are never staged, all processes share one inode and write it in place.

flock and O_EXCL between processes work on them for that reason, which versions would break.
"""

from __future__ import annotations

import threading

from hcfs.store import Attributes, Pin, Staged, Store
from hcfs.store.accounts import Account
from hcfs.store.errors import NoSuchObject

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
        """All of it, or an error and the content as it was settled last."""
        with self._mutex:
            try:
                self._changes += 1
                return self._in_place().write(offset, data)
            except BaseException:
                self._give_up()
                raise

    def truncate(self, size: int) -> None:
        """Cut or extend with zeros."""
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
