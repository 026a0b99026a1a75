"""Checkpoints: the whole metadata, written to the region that isn't current, while others work on. Order of writes:
docs/format.md, "Invariants" and "Metadata region"."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from hcfs.device import DeviceError
from hcfs.store import frame, page
from hcfs.store.errors import MetadataFull, ReadOnlyStore, UnreadableChecksums
from hcfs.store.frame import FrameType
from hcfs.store.ledger import Ledger
from hcfs.store.log import LogWriter
from hcfs.store.page import Placements
from hcfs.store.region_header import RegionHeader, write_headers
from hcfs.store.retention import Retention
from hcfs.store.superblock import BLOCK
from hcfs.store.unaligned import read_bytes

log = logging.getLogger(__name__)

ReadTable = Callable[[int, int], bytes]
"""(device offset, length) -> checksums"""

CHECKPOINT_TRIES = 4
"""Checkpoints in a row, each of which more changes came in meanwhile than the new log has room for"""
CATCH_UP_ROUNDS = 16
CATCH_UP_BATCH = 1024
CATCH_UP_REST = 64
"""Transactions: a round ends the catching up when it leaves no more, or after so many rounds"""
PAUSE = 0.002
"""Seconds after each page of a checkpoint that nobody waits for: the interpreter is free then, and a page takes about
as long"""


class Checkpoints:
    """Writes checkpoints. Whoever calls it holds the ledger's checkpoint lock, and neither of the others."""

    def __init__(self, ledger: Ledger, retention: Retention) -> None:
        self._ledger = ledger
        self._retention = retention
        self._device = ledger.device

    def write(self, *, forced: bool, clear: bool = False) -> None:
        """Write the other region and make it current. Checkpoint lock held. forced: commits wait for it, so what can't
        be read is given up. clear: nothing of what that region held before is left.

        Raises MetadataFull, ReadOnlyStore, and UnreadableChecksums unless forced, with nothing changed; after any other
        exception the store has stopped."""
        ledger = self._ledger
        read_table = self._read_or_give_up_table if forced else self._read_table
        try:
            self._load_pinned_checksums(read_table)
            if clear:
                # A checkpoint writes no more than it needs. The headers stay, so that a crash finds which region is the
                # younger one.
                body = ledger.superblock.regions[1 - ledger.region] + 1
                self._device.zero(body * BLOCK, (ledger.superblock.header_copy - 1) * BLOCK)
            for _ in range(CHECKPOINT_TRIES):
                if self._try_checkpoint(read_table, pause=0.0 if forced else PAUSE):
                    return
        except (MetadataFull, ReadOnlyStore, UnreadableChecksums):
            raise
        except BaseException as error:
            ledger.fail_stop(error)
            raise
        raise MetadataFull(f"{self._device.name}: the metadata region can't hold the changes made during a checkpoint")

    def _try_checkpoint(self, read_table: ReadTable, pause: float) -> bool:
        """Pages while others commit to the old region's log, then the changes since, then the switch, for which alone
        commits wait. False when the new log had no room for the changes."""
        ledger = self._ledger
        number = 1 - ledger.region
        # Counted up for every try: frames that one leaves must not verify in the next.
        ledger.region_generation += 1
        generation = ledger.region_generation
        start = ledger.superblock.regions[number] * BLOCK
        length = ledger.superblock.header_copy * BLOCK
        region_seed = frame.seed(ledger.superblock.uuid, generation)
        with ledger.lock:
            ledger.since_checkpoint = []
            checkpoint_seq = ledger.next_sequence - 1
        try:
            written, pages, placed = self._write_pages(start, length, region_seed, read_table, pause)
            log_block = 1 + -(-written // BLOCK)
            writer = LogWriter(
                self._device, ledger.superblock.uuid, start, length, generation, log_block * BLOCK, log_block * BLOCK
            )
            following = self._catch_up(writer, checkpoint_seq + 1)
            if following is None:
                return False
            with ledger.commit_lock:
                if not self._switch(number, writer, checkpoint_seq, following, written, pages):
                    return False
        finally:
            with ledger.lock:
                ledger.since_checkpoint = None
        self._place_checksums(placed)
        return True

    def _switch(
        self, number: int, writer: LogWriter, checkpoint_seq: int, following: int, written: int, pages: int
    ) -> bool:
        """Make a region current whose pages are written, and its log up to the transaction before `following`.
        Commit lock held. False, and nothing done, when the log has no room for the rest."""
        ledger = self._ledger
        start = ledger.superblock.regions[number] * BLOCK
        with ledger.lock:
            since, ledger.since_checkpoint = ledger.since_checkpoint or [], None
            if not writer.fits(since):
                return False
            ledger.require_going()
            # Of the changes made meanwhile all are in the new log; those that came in before were in memory when the
            # pages were made.
            ledger.queue = []
            freed = self._retention.take_freed()
            next_serial = ledger.serial_limit
        try:
            if since:
                writer.append(since, following)
            if writer.room >= BLOCK:
                # A frame of the region's former life never verifies here, but a zero block makes the end plain to see.
                self._device.write(start + writer.at, bytes(BLOCK))
            self._device.flush()
            header = RegionHeader(
                ledger.region_generation,
                checkpoint_seq,
                written,
                writer.begin // BLOCK,
                pages,
                next_serial,
                time.time_ns(),
            )
            write_headers(self._device, ledger.superblock, number, header)
        except BaseException as error:
            # Before the commit lock is let go: the old log lacks what was taken from the queue.
            ledger.fail_stop(error)
            raise
        with ledger.lock:
            ledger.writer, ledger.region = writer, number
            self._retention.settle(freed)
            ledger.counters.checkpoints += 1
        return True

    def _catch_up(self, writer: LogWriter, following: int) -> int | None:
        """Write to the new log what was changed since the pages were begun, until little is left for the time in which
        commits wait; the next sequence number, or None when it has no room. Nobody relies on that log yet."""
        ledger = self._ledger
        for _ in range(CATCH_UP_ROUNDS):
            with ledger.lock:
                assert ledger.since_checkpoint is not None
                if len(ledger.since_checkpoint) <= CATCH_UP_REST:
                    break
                since, ledger.since_checkpoint = ledger.since_checkpoint, []
            for first in range(0, len(since), CATCH_UP_BATCH):
                batch = since[first : first + CATCH_UP_BATCH]
                if not writer.append(batch, following):
                    return None
                following += len(batch)
        return following

    def _write_pages(
        self, start: int, length: int, region_seed: int, read_table: ReadTable, pause: float
    ) -> tuple[int, int, Placements]:
        """Write all pages; (bytes written, pages, where each object's checksums stand on the device). pause: seconds
        after each."""
        pages, slot, written = 0, 1, 0
        placed = Placements()
        carry = b""
        carry_at = start + BLOCK
        while slot < len(self._ledger.index.table):
            self._ledger.require_going()
            with self._ledger.lock:
                draft = page.draft(self._ledger.index, slot)
            slot = draft.next_slot
            payload, at = draft.finish(read_table)
            payload_at = start + BLOCK + written + frame.HEADER_BYTES
            placed.add(at, payload_at)
            encoded = frame.encode(FrameType.PAGE, 0, pages, payload, region_seed)
            pages += 1
            written += len(encoded)
            if BLOCK + written > length:
                raise MetadataFull(f"{self._device.name}: the checkpoint doesn't fit its region of {length} bytes")
            carry += encoded
            whole = len(carry) // BLOCK * BLOCK
            if whole:
                self._device.write(carry_at, carry[:whole])
                carry, carry_at = carry[whole:], carry_at + whole
            if pause:
                time.sleep(pause)
        if carry:
            self._device.write(carry_at, carry.ljust(BLOCK, b"\0"))
        return written, pages, placed

    def _read_table(self, offset: int, length: int) -> bytes:
        """Checksums from the medium. Raises UnreadableChecksums: the read may succeed the next time, and a checkpoint
        can be made then."""
        try:
            return read_bytes(self._device, offset, length)
        except DeviceError as error:
            self._ledger.counters.device_errors += 1
            raise UnreadableChecksums(
                f"{self._device.name}: no checkpoint can be made, since the checksums of an object can't be read"
                f" ({error}); it is tried again"
            ) from error

    def _read_or_give_up_table(self, offset: int, length: int) -> bytes:
        """As `_read_table`, for a checkpoint that can't wait since the log is full: zeros where checksums can't be
        read. Then the object's bytes don't verify any more, which costs that object and not the whole store."""
        try:
            return self._read_table(offset, length)
        except UnreadableChecksums as error:
            log.warning("the content of the object is given up: %s", error)
            return bytes(length)

    def _load_pinned_checksums(self, read_table: ReadTable) -> None:
        """Pins may point at checksums in the region that is about to be overwritten."""
        for pin in self._retention.pins():
            if isinstance(pin.checksums, tuple):
                pin.checksums = read_table(*pin.checksums)

    def _place_checksums(self, placed: Placements) -> None:
        """The checksums of what the pages hold are read from there from now on. Piece by piece: as long as this
        checkpoint's lock is held, where they were before is as good."""
        table = self._ledger.index.table
        for piece in placed.pieces():
            with self._ledger.lock:
                for slot, oid, generation, offset in piece:
                    if table.id[slot] == oid and table.generation[slot] == generation:
                        table.table_at[slot] = offset
                        table.tables.pop(slot, None)
