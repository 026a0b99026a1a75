"""What all parts of one mounted filesystem stand on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from hcfs.cache import Cache
from hcfs.filesystem.background import Background
from hcfs.filesystem.calls import Blocking, finish
from hcfs.filesystem.kernel_caches import KernelCaches
from hcfs.store import Attributes, Store
from hcfs.store.errors import MetadataFull

T = TypeVar("T")


@dataclass(slots=True)
class CallCounts:
    """Counts of calls since the mount began."""

    lookups: int = 0
    lookup_misses: int = 0
    opens: int = 0
    abandoned: int = 0
    """Versions that were to be published and weren't: their writer was killed, or failed, or never came back."""


class Volume:
    """The store, the cache over it, the kernel's caches before it, and the lock.

    `lock` guards versions, handles' versions and lock files' counts. It is taken before the store's lock and never held
    across device I/O; the cache, which takes its own lock, is called without it. "Lock held", in a docstring, is this
    one; "both locks", this and the store's.
    """

    def __init__(
        self,
        store: Store,
        cache: Cache,
        kernel: KernelCaches,
        *,
        read_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.cache = cache
        self.kernel = kernel
        self.read_only = read_only
        self.clock = clock
        self.lock = threading.RLock()
        self.counts = CallCounts()
        self.background = Background()
        self.device: int | None = None
        """The st_dev of this filesystem's files, once it is mounted."""
        self.pid_zero_seen = False
        """A client in another pid namespace wrote: its handles don't share versions."""

    def attributes_at(self, parent: int, name: bytes) -> Attributes | None:
        """Of the committed object under a name, if there is one. Lock held."""
        oid = self.store.lookup(parent, name)
        return None if oid is None else self.store.attributes(oid)

    def make_durable(self) -> None:
        """Everything that is visible is durable when this returns; nothing to do on a read-only mount. Blocks."""
        if not self.read_only:
            self.store.commit()

    def with_room(self, make: Callable[[], T | Blocking[T]]) -> T | Blocking[T]:
        """Change something that metadata must have room for, as Cache.with_room; the answer is Blocking only where
        there is none at once."""
        try:
            return make()
        except MetadataFull:
            return Blocking(lambda: self._with_room_made(make))

    def _with_room_made(self, make: Callable[[], T | Blocking[T]]) -> T:
        try:
            return self.cache.with_room(lambda: finish(make()))
        except MetadataFull as error:
            self.store.metadata_room.note_full(error)
            raise
