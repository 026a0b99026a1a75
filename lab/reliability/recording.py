"""A device that remembers every write and flush in order, so that any moment of a run can be looked at again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hcfs.device import MemoryDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Buffer


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes that were written at a device offset."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Flush:
    """A flush that returned: every write before it is durable."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What the caller noted between two operations."""

    value: object


Event = Write | Flush | Mark


class RecordingDevice(MemoryDevice):
    """A device in memory with a journal of what was done to it.

    `initial` is what it held before the first event; discards are recorded as writes of zeros.
    """

    def __init__(self, size: int, *, name: str = "recorded") -> None:
        super().__init__(size, name=name)
        self.initial = bytes(self.size)
        self.journal: list[Event] = []
        self.before_write: Callable[[], None] | None = None
        """called before each write: whatever happens meanwhile in other threads can be done here"""

    @classmethod
    def over(cls, contents: Buffer, *, name: str = "recorded") -> RecordingDevice:
        """A device that starts with a copy of `contents`."""
        device = cls(0, name=name)
        device.initial = bytes(contents)
        device.contents = bytearray(device.initial)
        device.size = len(device.initial)
        return device

    def write(self, offset: int, data: Buffer) -> None:
        if self.before_write is not None:
            self.before_write()
        super().write(offset, data)
        self.journal.append(Write(offset, bytes(data)))

    def flush(self) -> None:
        super().flush()
        self.journal.append(Flush())

    def discard(self, offset: int, length: int) -> bool:
        super().discard(offset, length)
        self.journal.append(Write(offset, bytes(length)))
        return True

    def mark(self, value: object) -> None:
        """Note something that happened now."""
        self.journal.append(Mark(value))

    @property
    def writes(self) -> list[Write]:
        return [event for event in self.journal if isinstance(event, Write)]

    @property
    def flushes(self) -> int:
        return sum(isinstance(event, Flush) for event in self.journal)


@dataclass(frozen=True, slots=True)
class Epoch:
    """What happened between two flushes."""

    number: int
    writes: tuple[Write, ...]
    """outstanding at the epoch's end: a crash in it leaves any subset of them"""
    marks_before: tuple[object, ...]
    """all marks made before the flush that began the epoch returned, or right after it"""
    marks_within: tuple[object, ...]
    """marks made in the epoch, those in `marks_before` not included"""


def epochs(journal: list[Event]) -> Iterator[Epoch]:
    """The journal cut at its flushes, the last, unfinished epoch included. Marks that directly follow a flush were made
    while nothing was outstanding, so they count as before the epoch."""
    number = 0
    before: list[object] = []
    within: list[object] = []
    writes: list[Write] = []
    for event in journal:
        if isinstance(event, Flush):
            yield Epoch(number, tuple(writes), tuple(before), tuple(within))
            number += 1
            before += within
            within, writes = [], []
        elif isinstance(event, Write):
            writes.append(event)
        elif writes:
            within.append(event.value)
        else:
            before.append(event.value)
    yield Epoch(number, tuple(writes), tuple(before), tuple(within))
