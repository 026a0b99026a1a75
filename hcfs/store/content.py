"""Reading committed objects: every byte verified against its granule's checksum before it is handed out."""

from __future__ import annotations

import struct

from hcfs.device import DeviceError
from hcfs.store.durability import Durability
from hcfs.store.errors import ChecksumMismatch, UnreadableGranule
from hcfs.store.extents import Extent, pieces
from hcfs.store.pins import Pin
from hcfs.store.superblock import BLOCK
from hcfs.store.unaligned import read_bytes


class Content(Durability):
    """The part of the store that reads."""

    def read(self, pin: Pin, offset: int, length: int) -> memoryview:
        """Verified bytes; shorter than asked only at the object's end. Blocks.

        Raises ChecksumMismatch or UnreadableGranule, which name the granule; the caller decides about quarantine."""
        end = min(offset + length, pin.size)
        if offset >= end:
            return memoryview(b"")
        granule_bytes = self.superblock.granule
        first, last = offset // granule_bytes, (end - 1) // granule_bytes
        start = first * granule_bytes
        key = (pin.oid, pin.generation, first)
        partial = first == last and end - offset < min(granule_bytes, pin.size - start)
        cached = self.granules.get(key) if partial else None
        if cached is not None:
            view = memoryview(cached)[offset - start : end - start]
        else:
            data = self._read_granules(pin, first, last)
            if partial:
                self.granules.put(key, bytes(data))
            elif end % granule_bytes and end < pin.size:
                # A sequential reader comes back for the rest of the last granule.
                tail = last * granule_bytes - start
                self.granules.put((pin.oid, pin.generation, last), bytes(data[tail:]))
            view = data[offset - start : end - start]
        self.counters.read_bytes += len(view)
        return view

    def verify(self, pin: Pin) -> None:
        """Read and check the whole object. Blocks. Raises ChecksumMismatch or UnreadableGranule."""
        step = max(1, (1 << 20) // self.superblock.granule)
        granules = -(-pin.size // self.superblock.granule)
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
            found = read_bytes(self.device, *source)
        except DeviceError as error:
            self.counters.device_errors += 1
            raise UnreadableGranule(pin, 0, f"its checksums: {error}") from error
        with self.lock:
            if isinstance(pin.checksums, tuple):
                pin.checksums = found
            # Else a checkpoint read them before it began to overwrite the place, perhaps before they were read here.
            return pin.checksums

    def content_crc32c(self, oid: int) -> int:
        """The plain CRC32C of the object's bytes. May block to read its checksums. Raises NoSuchObject,
        UnreadableGranule."""
        pin = self.pin(oid)
        try:
            checksums = self.checksums_of(pin)
            table = struct.unpack(f"<{len(checksums) // 4}I", checksums)
            return self.checksummer.plain(oid, pin.size, table)
        finally:
            pin.release()

    def extents_of(self, oid: int) -> list[Extent]:
        """Where the object's bytes are; memory only. Raises NoSuchObject."""
        with self.lock:
            return list(self.index.table.extents(self.slot(oid)))

    def _read_granules(self, pin: Pin, first: int, last: int) -> memoryview:
        """Bytes of the granules [first, last], verified."""
        granule_bytes = self.superblock.granule
        start, end = first * granule_bytes, min((last + 1) * granule_bytes, pin.size)
        checksums = self.checksums_of(pin)
        buffer = self.pool.acquire(-(-(end - start) // BLOCK) * BLOCK)
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
            self.counters.device_errors += 1
            raise UnreadableGranule(pin, first, unreadable)
        for granule in range(first, last + 1):
            at = granule * granule_bytes - start
            data = buffer[at : min(at + granule_bytes, end - start)]
            if self.checksummer.checksum(pin.oid, granule, data) != int.from_bytes(
                checksums[granule * 4 : granule * 4 + 4], "little"
            ):
                self.counters.checksum_errors += 1
                raise ChecksumMismatch(pin, granule)
        return buffer[: end - start]

    def _fill(self, pin: Pin, first_block: int, buffer: memoryview) -> None:
        for piece in pieces(pin.extents, first_block, first_block + len(buffer) // BLOCK):
            at = (piece.logical - first_block) * BLOCK
            part = buffer[at : at + piece.count * BLOCK]
            if piece.block < 0:
                part[:] = bytes(len(part))
            else:
                self.device.read_into(piece.block * BLOCK, part)
