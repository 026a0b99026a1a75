"""Reading committed objects: every byte verified against its granule's checksum before it is handed out."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol, TypeVar

from hcfs.device import DeviceError
from hcfs.store.errors import ChecksumMismatch, UnreadableGranule
from hcfs.store.extents import Extent, pieces
from hcfs.store.granule_cache import GranuleCache
from hcfs.store.ledger import Ledger
from hcfs.store.pins import Pin
from hcfs.store.retention import Retention
from hcfs.store.superblock import BLOCK
from hcfs.store.unaligned import read_bytes

GRANULE_CACHE_SHARE = 8
"""One part in so many of the buffer pool's budget is what the granule cache may hold beside it"""


class Source(Protocol):
    """What granules are read of."""

    @property
    def oid(self) -> int: ...

    @property
    def generation(self) -> int:
        """With the id: which content this is, in the cache of granules."""

    @property
    def size(self) -> int:
        """In bytes; only the last granule may be shorter than the others."""


S = TypeVar("S", bound=Source)


class Content:
    """What hands bytes out. Thread-safe."""

    def __init__(self, ledger: Ledger, retention: Retention) -> None:
        self._ledger = ledger
        self._retention = retention
        self._device = ledger.device
        self._pool = ledger.pool
        self._checksummer = ledger.checksummer
        self._counters = ledger.counters
        self._granule_bytes = ledger.superblock.granule
        self.granules = GranuleCache(ledger.pool.budget // GRANULE_CACHE_SHARE)

    def read(self, pin: Pin, offset: int, length: int) -> memoryview:
        """Verified bytes; shorter than asked only at the object's end. Blocks.

        Raises ChecksumMismatch or UnreadableGranule, which name the granule; the caller decides about quarantine."""
        end = min(offset + length, pin.size)
        if offset >= end:
            return memoryview(b"")
        return self.cut(pin, offset, end, self._read_granules)

    def cut(self, source: S, offset: int, end: int, read: Callable[[S, int, int], memoryview]) -> memoryview:
        """The bytes [offset, end), which isn't empty, of verified granules: from the cache, or by `read`, which takes
        the first and the last granule. Blocks where `read` does; raises what it raises."""
        granule_bytes = self._granule_bytes
        first, last = offset // granule_bytes, (end - 1) // granule_bytes
        start = first * granule_bytes
        key = (source.oid, source.generation, first)
        partial = first == last and end - offset < min(granule_bytes, source.size - start)
        cached = self.granules.get(key) if partial else None
        if cached is not None:
            view = memoryview(cached)[offset - start : end - start]
        else:
            data = read(source, first, last)
            if partial:
                self.granules.put(key, bytes(data))
            elif end % granule_bytes and end < source.size:
                # A sequential reader comes back for the rest of the last granule.
                tail = last * granule_bytes - start
                self.granules.put((source.oid, source.generation, last), bytes(data[tail:]))
            view = data[offset - start : end - start]
        self._counters.read_bytes += len(view)
        return view

    def first_bad(self, oid: int, first: int, data: memoryview, checksums: bytes) -> int | None:
        """As Checksummer.first_bad, and counted. Whatever is handed out of a store was given to this."""
        bad = self._checksummer.first_bad(oid, first, data, checksums)
        if bad is not None:
            self._counters.checksum_errors += 1
        return bad

    def verify(self, pin: Pin) -> None:
        """Read and check the whole object. Blocks. Raises ChecksumMismatch or UnreadableGranule."""
        step = max(1, (1 << 20) // self._granule_bytes)
        granules = -(-pin.size // self._granule_bytes)
        for first in range(0, granules, step):
            self._read_granules(pin, first, min(first + step, granules) - 1)

    def verify_granules(self, pin: Pin, first: int, last: int) -> None:
        """Read and check the granules [first, last] from the device, at most 1 MiB. Blocks. Raises as `verify`."""
        self._read_granules(pin, first, last)

    def checksums_of(self, pin: Pin) -> bytes:
        """The pinned object's granule checksums. May block to read them; raises UnreadableGranule."""
        source = pin.checksums
        if isinstance(source, bytes):
            return source
        try:
            found = read_bytes(self._device, *source)
        except DeviceError as error:
            self._counters.device_errors += 1
            raise UnreadableGranule(pin, 0, f"its checksums: {error}") from error
        with self._ledger.lock:
            if isinstance(pin.checksums, tuple):
                pin.checksums = found
            # Else a checkpoint read them before it began to overwrite the place, perhaps before they were read here.
            return pin.checksums

    def content_crc32c(self, oid: int) -> int:
        """The plain CRC32C of the object's bytes. May block to read its checksums. Raises NoSuchObject,
        UnreadableGranule."""
        pin = self._retention.pin(oid)
        try:
            checksums = self.checksums_of(pin)
            table = struct.unpack(f"<{len(checksums) // 4}I", checksums)
            return self._checksummer.plain(oid, pin.size, table)
        finally:
            pin.release()

    def extents_of(self, oid: int) -> list[Extent]:
        """Where the object's bytes are; memory only. Raises NoSuchObject."""
        with self._ledger.lock:
            return list(self._ledger.index.table.extents(self._ledger.slot(oid)))

    def _read_granules(self, pin: Pin, first: int, last: int) -> memoryview:
        """Bytes of the granules [first, last], verified."""
        granule_bytes = self._granule_bytes
        start, end = first * granule_bytes, min((last + 1) * granule_bytes, pin.size)
        checksums = self.checksums_of(pin)
        buffer = self._pool.acquire(-(-(end - start) // BLOCK) * BLOCK)
        unreadable = ""
        try:
            self._fill(pin, start // BLOCK, buffer)
        except DeviceError as error:
            unreadable = str(error)
        if unreadable and first < last:
            # Which of them is it? Outside of the except clause, since the error's frames keep the buffer, and the pool
            # may have no other.
            del buffer
            for granule in range(first, last + 1):
                self._read_granules(pin, granule, granule)
        if unreadable:
            self._counters.device_errors += 1
            raise UnreadableGranule(pin, first, unreadable)
        data = buffer[: end - start]
        bad = self.first_bad(pin.oid, first, data, checksums[first * 4 : (last + 1) * 4])
        if bad is not None:
            raise ChecksumMismatch(pin, bad)
        return data

    def _fill(self, pin: Pin, first_block: int, buffer: memoryview) -> None:
        for piece in pieces(pin.extents, first_block, first_block + len(buffer) // BLOCK):
            at = (piece.logical - first_block) * BLOCK
            part = buffer[at : at + piece.count * BLOCK]
            if piece.block < 0:
                part[:] = bytes(len(part))
            else:
                self._device.read_into(piece.block * BLOCK, part)
