"""A device made of a shared base and a few writes on top: a crash state costs what it changes, not a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcfs.device.protocol import IoMode, check_range
from lab.reliability.recording import Event, Flush, Write

if TYPE_CHECKING:
    from typing_extensions import Buffer


Patches = list[tuple[int, bytes]]
"""(device offset, bytes), later ones over earlier ones"""


class OverlayDevice:
    """`base` under `patches`, later ones on top. What is written here becomes a further patch and an event of
    `journal`; the base is never changed."""

    io: IoMode = "memory"
    read_only = False

    def __init__(self, base: Buffer, patches: Patches, *, name: str = "crash state") -> None:
        self.name = name
        self._base = memoryview(base)
        self.size = len(self._base)
        self._patches = list(patches)
        self.journal: list[Event] = []

    def read_into(self, offset: int, buffer: memoryview) -> None:
        length = buffer.nbytes
        check_range(self, "read", offset, length)
        buffer[:] = self._base[offset : offset + length]
        end = offset + length
        for at, data in self._patches:
            if at < end and at + len(data) > offset:
                first, stop = max(at, offset), min(at + len(data), end)
                buffer[first - offset : stop - offset] = data[first - at : stop - at]

    def write(self, offset: int, data: Buffer) -> None:
        data = bytes(data)
        check_range(self, "write", offset, len(data))
        self._patches.append((offset, data))
        self.journal.append(Write(offset, data))

    def flush(self) -> None:
        self.journal.append(Flush())

    takes_discard = True

    def discard(self, offset: int, length: int) -> bool:
        self.write(offset, bytes(length))
        return True

    def zero(self, offset: int, length: int) -> None:
        self.write(offset, bytes(length))

    def close(self) -> None:
        pass

    @property
    def wrote(self) -> bool:
        return any(isinstance(event, Write) for event in self.journal)

    def materialise(self) -> bytes:
        """The whole content."""
        contents = bytearray(self._base)
        for at, data in self._patches:
            contents[at : at + len(data)] = data
        return bytes(contents)
