"""Discards: the medium is told, in batches, which blocks hold nothing of value any more."""

from __future__ import annotations

import time
from collections.abc import Callable

from hcfs.store.intervals import Intervals
from hcfs.store.store import Store
from hcfs.store.superblock import BLOCK

BATCH_BLOCKS = (64 << 20) // BLOCK
BATCH_PART = 64
"""Withheld from writers while they are discarded: 64 MiB at most, and a part of the capacity on a small device."""


class Discards:
    """Free blocks that the medium may not know of as free. What is discarded is taken out of the allocator first, so it
    can't be given to a writer meanwhile; and only free blocks are in the allocator: those whose freeing is durable, and
    that nobody reads.

    It begins with all that is free, since nobody remembers what a former mount has discarded. `run` is for one thread;
    the rest for any."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending = Intervals()
        self.discarded_bytes = 0
        self.refused_bytes = 0
        """That the medium didn't take"""
        with store.ledger.lock:
            for block, count in store.ledger.space.allocator.free_runs():
                self._note(block, count)
            store.ledger.space.on_free.append(self._note)

    def _note(self, block: int, count: int) -> None:
        self._pending.add(block, block + count)

    @property
    def pending_bytes(self) -> int:
        """Freed and not discarded; some of it may be in use again by the time it is its turn."""
        with self._store.ledger.lock:
            return self._pending.total * BLOCK

    def run(self, seconds: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Discard for about so long, or until there is no more, or `stop()` is true. Blocks; raises nothing of its
        own."""
        store = self._store
        end = time.monotonic() + seconds
        most = max(1, min(BATCH_BLOCKS, store.superblock.data_blocks // BATCH_PART))
        while time.monotonic() < end and not stop():
            with store.ledger.lock:
                piece = self._pending.take(most)
                if piece is None:
                    return
                runs = store.ledger.space.withhold(*piece)
            try:
                for block, count in runs:
                    if store.device.discard(block * BLOCK, count * BLOCK):
                        self.discarded_bytes += count * BLOCK
                    else:
                        self.refused_bytes += count * BLOCK
            finally:
                store.retention.restore(runs)
