"""Devices that watch, refuse or remember what the store does to them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hcfs.device import DeviceError, MemoryDevice
from hcfs.device.protocol import BlockDevice, IoMode

SECTOR = 512

Hook = Callable[[str, int, int], None]
"""Called as hook(operation, offset, length) before each read, write and flush; what it raises is the call's answer."""


class Watched:
    """A device over another one, with hooks before each call."""

    def __init__(self, inner: BlockDevice, *hooks: Hook) -> None:
        self.inner = inner
        self.hooks = list(hooks)
        self.calls: list[tuple[str, int, int]] = []
        """(operation, offset, length) of every write and flush, as they began"""

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def size(self) -> int:
        return self.inner.size

    @property
    def io(self) -> IoMode:
        return self.inner.io

    @property
    def read_only(self) -> bool:
        return self.inner.read_only

    def _tell(self, operation: str, offset: int, length: int) -> None:
        if operation != "read":
            self.calls.append((operation, offset, length))
        for hook in list(self.hooks):
            hook(operation, offset, length)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._tell("read", offset, buffer.nbytes)
        self.inner.read_into(offset, buffer)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self._tell("write", offset, memoryview(data).nbytes)
        self.inner.write(offset, data)

    def flush(self) -> None:
        self._tell("flush", 0, 0)
        self.inner.flush()

    def discard(self, offset: int, length: int) -> None:
        self.inner.discard(offset, length)

    def close(self) -> None:
        self.inner.close()


@dataclass
class Fault:
    """A hook that fails calls: those of `operation` that touch [start, end), from the `first` on, `times` of them."""

    operation: str
    start: int = 0
    end: int = 1 << 62
    first: int = 1
    times: int = 1 << 62
    seen: int = 0
    failed: int = 0

    def __call__(self, operation: str, offset: int, length: int) -> None:
        inside = operation == "flush" or (offset < self.end and self.start < offset + length)
        if operation != self.operation or not inside:
            return
        self.seen += 1
        if self.seen >= self.first and self.failed < self.times:
            self.failed += 1
            raise DeviceError("faulty", operation, offset, length)


@dataclass
class Crashing:
    """A device with a volatile cache: what was written since the last flush may survive a crash in any part.

    `states` gives what a crash now could leave: each sector of each write since the flush has come through or not.
    Writes are applied in the order they were made, so that a block that was written twice holds one of the two."""

    size: int
    name: str = "crashing"
    io: IoMode = "memory"
    read_only: bool = False
    durable: bytearray = field(default_factory=bytearray)
    medium: MemoryDevice = field(init=False)
    outstanding: list[tuple[int, bytes]] = field(default_factory=list)
    on_crash_point: Callable[[], None] | None = None
    """called before each flush, when most is outstanding"""

    def __post_init__(self) -> None:
        self.medium = MemoryDevice(self.size) if not self.durable else MemoryDevice.holding(self.durable)
        self.durable = bytearray(self.medium.contents)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self.medium.read_into(offset, buffer)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self.medium.write(offset, data)
        self.outstanding.append((offset, bytes(data)))

    def flush(self) -> None:
        if self.on_crash_point is not None:
            self.on_crash_point()
        for offset, data in self.outstanding:
            self.durable[offset : offset + len(data)] = data
        self.outstanding.clear()

    def discard(self, offset: int, length: int) -> None:
        self.medium.discard(offset, length)

    def close(self) -> None:
        pass

    def states(self, count: int, rng: random.Random) -> Iterator[bytearray]:
        """`count` states of the medium: nothing came through, everything did, one write was torn, or any mixture."""
        for number in range(count):
            state = bytearray(self.durable)
            torn = rng.randrange(len(self.outstanding)) if self.outstanding else 0
            chance = rng.choice((0.1, 0.5, 0.9))
            for index, (offset, data) in enumerate(self.outstanding):
                for at in range(0, len(data), SECTOR):
                    through = (
                        number == 1
                        or (number % 3 == 2 and (index < torn or (index == torn and rng.random() < 0.5)))
                        or (number >= 3 and number % 3 != 2 and rng.random() < chance)
                    )
                    if through:
                        state[offset + at : offset + at + SECTOR] = data[at : at + SECTOR]
            yield state
