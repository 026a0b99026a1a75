"""Devices that watch, refuse or remember what the store does to them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from lab.reliability import crash
from lab.reliability.crash import SECTOR
from lab.reliability.faults import Fault, Watched
from lab.reliability.overlay import OverlayDevice
from lab.reliability.recording import RecordingDevice

__all__ = ["SECTOR", "Crashing", "Fault", "Watched"]


class Crashing(RecordingDevice):
    """A device with a volatile cache: what was written since the last flush may survive a crash in any part."""

    def __init__(self, size: int, *, durable: bytes | bytearray | None = None) -> None:
        super().__init__(size, name="crashing")
        if durable is not None:
            self.contents[:] = durable
        self.durable = bytearray(self.contents)
        self.on_crash_point: Callable[[], None] | None = None
        """called before each flush, when most is outstanding"""

    def flush(self) -> None:
        if self.on_crash_point is not None:
            self.on_crash_point()
        for write in self.writes:
            self.durable[write.offset : write.offset + len(write.data)] = write.data
        self.journal.clear()

    def close(self) -> None:
        """Nothing: the test goes on to look at it."""

    def states(self, count: int, rng: random.Random) -> Iterator[bytearray]:
        """Up to `count` states of the medium that a crash now could leave."""
        for patches in crash.states(self.writes, rng, count):
            yield bytearray(OverlayDevice(self.durable, patches).materialise())
