"""Reading a metadata region: the pages of its checkpoint, and its log. Format: docs/format.md, "Metadata region"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hcfs.device import BlockDevice, DeviceError
from hcfs.store import frame as frames
from hcfs.store.frame import FIRST_IN_BATCH, Frame, FrameType
from hcfs.store.region_header import RegionHeader
from hcfs.store.superblock import BLOCK, Superblock

_WINDOW = 1 << 20
UNREADABLE_MAX = 16
"""Blocks of the log that can't be read before the whole region is given up: a drive that answers each read only after a
timeout mustn't hold up a mount for hours"""


class RegionReader:
    """Reads the frames of one region, a window at a time. Positions are bytes from the region's start."""

    def __init__(self, device: BlockDevice, superblock: Superblock, number: int) -> None:
        self.number = number
        self.start = superblock.regions[number] * BLOCK
        self.length = superblock.header_copy * BLOCK
        """Of what pages and log may fill: up to the copy of the header"""
        self._device = device
        self._superblock = superblock
        self._at = self._end = 0
        self._buffer = memoryview(b"")
        self._narrow_until = 0
        """Before this position only what is asked for is read, since a whole window couldn't be"""

    def seed(self, generation: int) -> int:
        return frames.seed(self._superblock.uuid, generation)

    def read(self, offset: int, length: int) -> memoryview:
        """Any bytes of the region, at most 16 MiB and a window. Raises DeviceError."""
        if not (self._at <= offset and offset + length <= self._end):
            first, needed = offset // BLOCK * BLOCK, -(-(offset + length) // BLOCK) * BLOCK
            last = needed if first < self._narrow_until else min(self.length, max(first + _WINDOW, needed))
            try:
                buffer = self._read(first, last)
            except DeviceError:
                if last == needed:
                    raise
                self._narrow_until, last = last, needed
                buffer = self._read(first, last)
            self._buffer, self._at, self._end = buffer, first, last
        return self._buffer[offset - self._at : offset - self._at + length]

    def window(self, offset: int) -> memoryview:
        """A block of the region and what was read along with it behind that. Raises DeviceError."""
        self.read(offset, BLOCK)
        return self._buffer[offset - self._at :]

    def _read(self, first: int, last: int) -> memoryview:
        buffer = memoryview(bytearray(last - first))
        self._device.read_into(self.start + first, buffer)
        return buffer

    def frame(self, offset: int, start: int) -> Frame | None:
        """The frame at `offset`, if it verifies from `start` on (see `frame.encode`); its `end` counts from the
        region's start. Raises DeviceError."""
        if offset + frames.HEADER_BYTES > self.length:
            return None
        head = self.read(offset, frames.HEADER_BYTES)
        plausible = frames.peek(head, 0)
        if plausible is None:
            return None
        total = frames.padded(plausible[0])
        if offset + total > self.length:
            return None
        found = frames.decode(self.read(offset, total), 0, start)
        if found is None:
            return None
        return replace(found, end=offset + found.end)

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
    """Iterates over a log's transactions; after that says where the log ends and what was damaged. Raises DeviceError
    when too much can't be read."""

    def __init__(self, reader: RegionReader, header: RegionHeader) -> None:
        self._reader = reader
        self._seed = reader.seed(header.generation)
        self.end = header.log_block * BLOCK
        """Where the next batch goes, bytes from the region's start"""
        self.next_sequence = header.checkpoint_seq + 1
        self.torn = False
        """The log ends in a batch that was begun and isn't whole"""
        self.damage: list[LogDamage] = []
        self._search_budget = 4 * reader.length + frames.MAX_PAYLOAD
        """Bytes that are checksummed in looking for what goes on behind damage: blocks made to look like long frames
        would otherwise take hours"""
        self.unreadable: set[int] = set()
        """Blocks, from the region's start, that the device couldn't read"""

    def __iter__(self) -> Iterator[Frame]:
        at = self.end
        tear: int | None = None
        """Where the last batch stops to make sense"""
        while at + BLOCK <= self._reader.length:
            expected = self.next_sequence
            found = self._frame(at, self._seed)
            if not (found and self._begins_batch(found) and found.sequence == expected):
                resumed = self._search(at, expected)
                if resumed is None:
                    self.torn = tear is not None or self._is_begun(at, expected)
                    return
                offset, sequence = resumed
                lost_from = at if tear is None else tear
                self.damage.append(LogDamage(expected, sequence, self._reader.start + lost_from, offset - lost_from))
                self.next_sequence, at, tear = sequence, offset, None
                continue
            while found is not None:
                yield found
                self.next_sequence += 1
                at, last_crc = found.end, found.crc
                found = self._next_in_batch(at, last_crc)
            # The batch's last frame, or a tear inside the batch: either way the next batch starts at a block boundary.
            # After a tear there is none with the expected number, and the search decides which of the two ends this is.
            tear = at if at % BLOCK and self._length_at(at) else None
            at = -(-at // BLOCK) * BLOCK
            self.end = at

    def _frame(self, at: int, start: int) -> Frame | None:
        """The frame there; None also where it can't be read."""
        try:
            return self._reader.frame(at, start)
        except DeviceError as error:
            self._note_unreadable(at, error)
            return None

    def _note_unreadable(self, at: int, error: DeviceError) -> None:
        self.unreadable.add(at // BLOCK)
        if len(self.unreadable) > UNREADABLE_MAX:
            raise error

    def _head(self, at: int) -> tuple[int, int, int, int] | None:
        try:
            return frames.peek(self._reader.read(at, frames.HEADER_BYTES), 0)
        except DeviceError as error:
            self._note_unreadable(at, error)
            return None

    @staticmethod
    def _begins_batch(found: Frame) -> bool:
        return found.type == FrameType.TRANSACTION and bool(found.flags & FIRST_IN_BATCH)

    def _is_begun(self, at: int, expected: int) -> bool:
        """Whether the header of a batch with the expected number is there."""
        head = self._head(at)
        return head is not None and bool(head[2] & FIRST_IN_BATCH) and head[3] == expected

    def _length_at(self, at: int) -> int:
        """The length that a frame's header at `at` gives; 0, as in the zeros behind a batch's last frame, for none."""
        return int.from_bytes(self._reader.read(at, 4), "little") if at + 4 <= self._reader.length else 0

    def _next_in_batch(self, at: int, last_crc: int) -> Frame | None:
        found = self._frame(at, last_crc)
        if found is None or found.type != FrameType.TRANSACTION or found.flags & FIRST_IN_BATCH:
            return None
        return found if found.sequence == self.next_sequence else None

    def _begun(self, at: int) -> Iterator[int]:
        """Blocks from `at` on that don't begin with zeros: all that a search has to look at, and with most of a region
        never written, few."""
        while at + BLOCK <= self._reader.length:
            try:
                window = self._reader.window(at)
            except DeviceError as error:
                self._note_unreadable(at, error)
                at += BLOCK
                continue
            for block, length in enumerate(window.cast("I")[:: BLOCK // 4].tolist()):
                if length:
                    yield at + block * BLOCK
            at += len(window)

    def _search(self, at: int, expected: int) -> tuple[int, int] | None:
        """The next batch at or behind `at` that verifies and comes later: (offset, sequence)."""
        for offset in self._begun(at):
            head = self._head(offset)
            if head is None or head[1] != FrameType.TRANSACTION or not head[2] & FIRST_IN_BATCH or head[3] <= expected:
                continue
            self._search_budget -= head[0]
            if self._search_budget < 0:
                return None
            if self._frame(offset, self._seed) is not None:
                return offset, head[3]
        return None
