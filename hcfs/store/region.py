"""A metadata region: its header, and reading it whole. Format: docs/format.md, "Metadata region"."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from crc32c import crc32c

from hcfs.device import BlockDevice
from hcfs.store import frame as frames
from hcfs.store.frame import FIRST_IN_BATCH, Frame, FrameType
from hcfs.store.superblock import BLOCK, Superblock

MAGIC = b"HCFSREGN"
_FIELDS = struct.Struct("<8s16sQQQQQQQ")
_CRC = struct.Struct("<I")
assert _FIELDS.size == 80, "docs/format.md gives the fields 80 bytes"
_WINDOW = 1 << 20


@dataclass(frozen=True, slots=True)
class RegionHeader:
    generation: int
    checkpoint_seq: int
    checkpoint_bytes: int
    log_block: int
    pages: int
    next_serial: int
    written_ns: int

    def encode(self, superblock: Superblock) -> bytes:
        """The header's block, 4,096 bytes."""
        fields = _FIELDS.pack(
            *(
                MAGIC,
                superblock.uuid.bytes,
                self.generation,
                self.checkpoint_seq,
                self.checkpoint_bytes,
                self.log_block,
            ),
            *(self.pages, self.next_serial, self.written_ns),
        )
        body = fields.ljust(BLOCK - _CRC.size, b"\0")
        return body + _CRC.pack(crc32c(body))


def decode_header(block: bytes | memoryview, superblock: Superblock) -> RegionHeader | None:
    """The header in a block, or None when it doesn't verify or belongs to another store."""
    if bytes(block[: len(MAGIC)]) != MAGIC or crc32c(block[: BLOCK - 4]) != _CRC.unpack_from(block, BLOCK - 4)[0]:
        return None
    _, uuid, *rest = _FIELDS.unpack_from(block)
    header = RegionHeader(*rest)
    checkpoint_blocks = -(-header.checkpoint_bytes // BLOCK)
    if (
        uuid != superblock.uuid.bytes
        or header.log_block != 1 + checkpoint_blocks
        or header.log_block > superblock.region_blocks
    ):
        return None
    return header


class RegionReader:
    """Reads the frames of one region, a window at a time. Positions are bytes from the region's start."""

    def __init__(self, device: BlockDevice, superblock: Superblock, number: int) -> None:
        self.number = number
        self.start = superblock.regions[number] * BLOCK
        self.length = superblock.region_blocks * BLOCK
        self._device = device
        self._superblock = superblock
        self._at = self._end = 0
        self._buffer = memoryview(b"")

    def header(self) -> RegionHeader | None:
        """The region's header, or None. Raises DeviceError."""
        return decode_header(self.read(0, BLOCK), self._superblock)

    def seed(self, generation: int) -> int:
        return frames.seed(self._superblock.uuid, generation)

    def read(self, offset: int, length: int) -> memoryview:
        """Any bytes of the region, at most 16 MiB and a window. Raises DeviceError."""
        if not (self._at <= offset and offset + length <= self._end):
            first = offset // BLOCK * BLOCK
            last = min(self.length, max(first + _WINDOW, -(-(offset + length) // BLOCK) * BLOCK))
            buffer = memoryview(bytearray(last - first))
            self._device.read_into(self.start + first, buffer)
            self._buffer, self._at, self._end = buffer, first, last
        return self._buffer[offset - self._at : offset - self._at + length]

    def frame(self, offset: int, region_seed: int) -> Frame | None:
        """The frame at `offset`, if it verifies; its `end` counts from the region's start."""
        if offset + frames.HEADER_BYTES > self.length:
            return None
        head = self.read(offset, frames.HEADER_BYTES)
        plausible = frames.peek(head, 0)
        if plausible is None:
            return None
        total = frames.padded(plausible[0])
        if offset + total > self.length:
            return None
        found = frames.decode(self.read(offset, total), 0, region_seed)
        if found is None:
            return None
        return Frame(found.type, found.flags, found.sequence, found.payload, offset + found.end)

    def pages(self, header: RegionHeader) -> Iterator[tuple[int, Frame | None]]:
        """(device offset of the payload, page frame) for each page of the checkpoint; a None frame ends it early:
        damage."""
        region_seed = self.seed(header.generation)
        at = BLOCK
        for number in range(header.pages):
            page = self.frame(at, region_seed)
            if (
                page is None
                or page.type != FrameType.PAGE
                or page.sequence != number
                or page.end > BLOCK + header.checkpoint_bytes
            ):
                yield 0, None
                return
            yield self.start + at + frames.HEADER_BYTES, page
            at = page.end


@dataclass(frozen=True, slots=True)
class LogDamage:
    """Damage in the middle of the log: transactions with sequence numbers in [first, end) are lost."""

    first: int
    end: int
    offset: int
    bytes: int


class LogScan:
    """Iterates over a log's transactions; after that says where the log ends and what was damaged."""

    def __init__(self, reader: RegionReader, header: RegionHeader) -> None:
        self._reader = reader
        self._seed = reader.seed(header.generation)
        self.end = header.log_block * BLOCK
        """where the next batch goes, bytes from the region's start"""
        self.next_sequence = header.checkpoint_seq + 1
        self.torn = False
        """the log ends in a batch that was begun and isn't whole"""
        self.damage: list[LogDamage] = []

    def __iter__(self) -> Iterator[Frame]:
        at = self.end
        while at + BLOCK <= self._reader.length:
            expected = self.next_sequence
            found = self._reader.frame(at, self._seed)
            if not (
                found
                and found.type == FrameType.TRANSACTION
                and found.flags & FIRST_IN_BATCH
                and found.sequence == expected
            ):
                resumed = self._search(at, expected)
                if resumed is None:
                    head = frames.peek(self._reader.read(at, frames.HEADER_BYTES), 0)
                    self.torn = head is not None and bool(head[2] & FIRST_IN_BATCH) and head[3] == expected
                    return
                offset, sequence = resumed
                self.damage.append(LogDamage(expected, sequence, self._reader.start + at, offset - at))
                self.next_sequence, at = sequence, offset
                continue
            while found is not None:
                yield found
                self.next_sequence += 1
                at = found.end
                found = self._next_in_batch(at)
            # The batch's last frame, or a tear inside the batch: either way the next batch starts at a block boundary.
            # After a tear there is none with the expected number, and the search decides which of the two ends this is.
            at = -(-at // BLOCK) * BLOCK
            self.end = at

    def _next_in_batch(self, at: int) -> Frame | None:
        found = self._reader.frame(at, self._seed)
        if found is None or found.type != FrameType.TRANSACTION or found.flags & FIRST_IN_BATCH:
            return None
        return found if found.sequence == self.next_sequence else None

    def _search(self, at: int, expected: int) -> tuple[int, int] | None:
        """The next batch behind `at` that verifies and comes later: (offset, sequence)."""
        for offset in range(at + BLOCK, self._reader.length - BLOCK + 1, BLOCK):
            head = frames.peek(self._reader.read(offset, frames.HEADER_BYTES), 0)
            if head is None or head[1] != FrameType.TRANSACTION or not head[2] & FIRST_IN_BATCH or head[3] < expected:
                continue
            if self._reader.frame(offset, self._seed) is not None:
                return offset, head[3]
        return None
