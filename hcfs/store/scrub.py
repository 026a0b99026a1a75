"""Scrub: re-reads the objects of a store in use at a bounded rate, so that damage is found before a reader meets it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from hcfs.store.attributes import SLOT_MASK, Kind
from hcfs.store.errors import DamagedGranule, NoSuchObject
from hcfs.store.pins import Pin
from hcfs.store.store import Store

STEP_BYTES = 1 << 20
"""Read and verified between two looks at the clock"""
BURST_SECONDS = 0.25
"""How far the reading may run ahead of the rate"""


@dataclass(frozen=True, slots=True)
class Damaged:
    """An object whose bytes don't verify, or can't be read."""

    oid: int
    generation: int
    """Of the bad content: quarantine the object only if it still has that"""
    granule: int
    reason: str
    """A sentence"""


@dataclass(frozen=True, slots=True)
class ScrubStatistics:
    """How far a pass is."""

    position: int
    """Slots below this are done; give it to a new Scrub as `start` to go on there, in a later mount too"""
    slots: int
    """Where the pass ends"""
    objects: int
    """Files verified since `start`"""
    checked_bytes: int
    """Bytes read and verified since `start`"""
    damaged: int
    """Files found bad since `start`"""
    finished: bool


class Scrub:
    """One pass over all committed files, in the order of their slots. Files that come meanwhile may be missed, those
    that go are skipped. An object's extents are pinned while it is read, so nothing is changed under it.

    For one thread; `statistics` may be called from any."""

    def __init__(
        self,
        store: Store,
        on_damage: Callable[[Damaged], None],
        *,
        bytes_per_second: float | None = None,
        start: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """on_damage: called once for each bad object, without locks, with the pin released: it quarantines.
        bytes_per_second: None for as fast as the device goes. start: a former pass's position."""
        if bytes_per_second is not None and bytes_per_second <= 0:
            raise ValueError(f"a scrub of {bytes_per_second} bytes a second never ends")
        self._store = store
        self._on_damage = on_damage
        self.bytes_per_second = bytes_per_second
        """May be changed while it runs"""
        self._clock = clock
        self._sleep = sleep
        self._due = clock()
        """When what was read so far may have been read"""
        self._statistics = ScrubStatistics(start, store.census.slots, 0, 0, 0, finished=False)

    @property
    def statistics(self) -> ScrubStatistics:
        return self._statistics

    def run(self, stop: Callable[[], bool] = lambda: False) -> ScrubStatistics:
        """Go on until the pass is finished or `stop()` is true, which is asked between two steps of 1 MiB; an object
        that was begun is begun again by the next call. Blocks; raises nothing but what `on_damage` raises."""
        while not self._statistics.finished:
            oid = self._next()
            if oid is None:
                self._note(finished=True)
            elif stop() or not self._scrub(oid, stop):
                break
        return self._statistics

    def _next(self) -> int | None:
        """The file at or behind the position; the position moves there."""
        store = self._store
        for oid in store.census.objects(self._statistics.position):
            with store.ledger.lock:
                if store.is_current(oid) and store.attributes(oid).kind is Kind.FILE:
                    self._note(position=oid & SLOT_MASK)
                    return oid
        return None

    def _scrub(self, oid: int, stop: Callable[[], bool]) -> bool:
        """Verify one object; False when stopped."""
        try:
            pin = self._store.pin(oid)
        except NoSuchObject:
            self._note(position=self._statistics.position + 1)
            return True
        damaged: Damaged | None = None
        try:
            if not self._verify(pin, stop):
                return False
        except DamagedGranule as error:
            damaged = self._judge(pin, error)
        finally:
            pin.release()
        if damaged is not None:
            self._on_damage(damaged)
        done = self._statistics
        self._note(position=done.position + 1, objects=done.objects + 1, damaged=done.damaged + (damaged is not None))
        return True

    def _judge(self, pin: Pin, error: DamagedGranule) -> Damaged | None:
        """None where the object has other content by now: what was read is damaged, but nobody's any more."""
        try:
            current = self._store.attributes(pin.oid).generation == pin.generation
        except NoSuchObject:
            return None
        return Damaged(pin.oid, pin.generation, error.granule, str(error)) if current else None

    def _verify(self, pin: Pin, stop: Callable[[], bool]) -> bool:
        granule_bytes = self._store.superblock.granule
        step = max(1, STEP_BYTES // granule_bytes)
        granules = -(-pin.size // granule_bytes)
        for first in range(0, granules, step):
            if first and stop():
                return False
            end = min(first + step, granules)
            self._store.content.verify_granules(pin, first, end - 1)
            self._pace(min(end * granule_bytes, pin.size) - first * granule_bytes)
        return True

    def _pace(self, length: int) -> None:
        """Note bytes that were read, and wait for the rate."""
        self._note(checked_bytes=self._statistics.checked_bytes + length)
        rate = self.bytes_per_second
        if rate is None:
            return
        now = self._clock()
        self._due = max(self._due, now - BURST_SECONDS) + length / rate
        if self._due > now:
            self._sleep(self._due - now)

    def _note(
        self,
        *,
        position: int | None = None,
        objects: int | None = None,
        checked_bytes: int | None = None,
        damaged: int | None = None,
        finished: bool = False,
    ) -> None:
        old = self._statistics
        self._statistics = ScrubStatistics(
            old.position if position is None else position,
            max(old.slots, self._store.census.slots),
            old.objects if objects is None else objects,
            old.checked_bytes if checked_bytes is None else checked_bytes,
            old.damaged if damaged is None else damaged,
            finished,
        )
