"""A read-only view of a medium, block by block, for those who look for marks in a few places."""

from __future__ import annotations

from collections.abc import Callable

from hcfs.device.protocol import BLOCK, BlockDevice


class Medium:
    """`size` bytes behind `read(offset, length)`, which is asked for whole aligned blocks (the last may be shorter),
    once each."""

    def __init__(self, size: int, read: Callable[[int, int], bytes]) -> None:
        self.size = size
        self._read = read
        self._blocks: dict[int, bytes] = {}

    @classmethod
    def of_device(cls, device: BlockDevice) -> Medium:
        """The whole blocks of a device."""

        def read(offset: int, length: int) -> bytes:
            buffer = bytearray(length)
            with memoryview(buffer) as view:
                device.read_into(offset, view)
            return bytes(buffer)

        return cls(device.size, read)

    def at(self, offset: int, length: int) -> bytes:
        """Bytes of a range; empty if it isn't inside the medium."""
        if offset < 0 or length < 0 or offset + length > self.size:
            return b""
        first = offset // BLOCK
        blocks = [self._block(number) for number in range(first, (offset + length - 1) // BLOCK + 1)]
        start = offset - first * BLOCK
        return b"".join(blocks)[start : start + length]

    def has(self, magic: bytes, offset: int) -> bool:
        """Whether these bytes are there."""
        return self.at(offset, len(magic)) == magic

    def number(self, offset: int, length: int) -> int:
        """The little-endian number there; 0 if the range isn't inside the medium."""
        return int.from_bytes(self.at(offset, length), "little")

    def text(self, offset: int, length: int, encoding: str = "utf-8") -> str | None:
        """Text padded with NULs or blanks; None if there is none, or nothing readable."""
        text = self.at(offset, length).decode(encoding, errors="replace").split("\0")[0].strip()
        return text if text and text.isprintable() else None

    def _block(self, number: int) -> bytes:
        block = self._blocks.get(number)
        if block is None:
            start = number * BLOCK
            block = self._blocks[number] = self._read(start, min(BLOCK, self.size - start))
        return block
