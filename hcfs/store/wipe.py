"""Wiping: zeros over all that no committed object has, so that what was dropped can't be read off the medium."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hcfs.device import DeviceError
from hcfs.store.intervals import Intervals
from hcfs.store.staged import Staged
from hcfs.store.store import Store
from hcfs.store.superblock import BLOCK

PIECE_BLOCKS = (16 << 20) // BLOCK
PIECE_PART = 64
"""Withheld from writers while they are zeroed: 16 MiB at most, and a part of the capacity on a small device."""

POLL_S = 0.05
"""Between two looks for blocks that were still in use."""


@dataclass(frozen=True, slots=True)
class Wiped:
    """What a wipe did, and what it couldn't do."""

    wiped_bytes: int
    open_bytes: int
    """Of objects that are gone, but for the handles that still read them"""
    unfinished_objects: int
    """That are being written: in space that held something else before, or of the namespace themselves"""

    stopped: bool
    """Before it had been everywhere"""

    @property
    def complete(self) -> bool:
        return not (self.open_bytes or self.unfinished_objects or self.stopped)


class Wipe:
    """One pass over everything that was free, pending or staged when it began: nobody remembers whose bytes free blocks
    hold, so all are wiped. Blocks that are being zeroed are taken out of the allocator, as for a discard.

    What is given to a writer before its turn comes is overwritten by it, but for what the writer gives back: that is
    zeroed when it is. For one thread."""

    def __init__(self, store: Store, namespace: int) -> None:
        """namespace: whose objects are gone, durably, when this is made."""
        self._store = store
        self._namespace = namespace
        self._wiped = 0
        self._passed = 0
        self._freed = Intervals()
        with store.ledger.lock:
            self._todo = store.ledger.space.allocator.free_runs()
            self._parked = store.retention.parked_oids()
            store.ledger.space.on_free.append(self._note)
        self.total_bytes = sum(count for _, count in self._todo) * BLOCK
        """What was free when it began."""

    @property
    def passed_bytes(self) -> int:
        """How much of that is done, zeroed here or overwritten by a writer that got it meanwhile."""
        return self._passed * BLOCK

    def _note(self, block: int, count: int) -> None:
        self._freed.add(block, block + count)

    def run(self, patience_s: float, stop: Callable[[], bool] = lambda: False) -> Wiped:
        """Zero everything; what is open or being written is waited for for `patience_s` and then told. Durable, with
        all else that is visible, when this returns. Blocks. Raises DeviceError, and what the store's commit raises."""
        store, stopped = self._store, False
        try:
            for block, count in self._pieces(self._todo):
                stopped = stop()
                if stopped:
                    break
                self._zero(block, count)
                self._passed += count
            deadline = time.monotonic() + patience_s
            with store.ledger.lock:
                # What is begun from now on gets blocks that are wiped.
                writing = set(store.staging.staged)
            while True:
                self._zero_freed()
                with store.ledger.lock:
                    left = self._left(writing, stopped)
                    done = not self._freed and left.complete
                if done or stop() or time.monotonic() > deadline:
                    break
                time.sleep(POLL_S)
        finally:
            with store.ledger.lock:
                store.ledger.space.on_free.remove(self._note)
                # For the commit to flush before it is taken for done.
                store.ledger.data_written = True
        store.commit()
        return left

    def _left(self, writing: set[Staged], stopped: bool) -> Wiped:
        """The store's lock is held."""
        unfinished = [
            each
            for each in writing
            if each in self._store.staging.staged
            and each.blocks_held
            and (each.namespace == self._namespace or not each.sealed)
        ]
        return Wiped(self._wiped, self._store.retention.parked_bytes(self._parked), len(unfinished), stopped)

    def _zero_freed(self) -> None:
        most = self._most
        while True:
            with self._store.ledger.lock:
                piece = self._freed.take(most)
            if piece is None:
                return
            self._zero(*piece)

    @property
    def _most(self) -> int:
        return max(1, min(PIECE_BLOCKS, self._store.superblock.data_blocks // PIECE_PART))

    def _pieces(self, runs: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        most = self._most
        for block, count in runs:
            for at in range(0, count, most):
                yield block + at, min(most, count - at)

    def _zero(self, block: int, count: int) -> None:
        store = self._store
        with store.ledger.lock:
            runs = store.ledger.space.withhold(block, count)
        try:
            for first, length in runs:
                store.device.zero(first * BLOCK, length * BLOCK)
                self._wiped += length * BLOCK
        except DeviceError:
            with store.ledger.lock:
                store.counters.device_errors += 1
            raise
        finally:
            store.retention.restore(runs)
