"""Making changes durable: group commit and checkpoints. Order of writes: docs/format.md, "Invariants" and "Metadata
region"."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from hcfs.device import DeviceError
from hcfs.store import frame, page
from hcfs.store.core import Core
from hcfs.store.errors import MetadataFull, ReadOnlyStore, UnreadableChecksums
from hcfs.store.frame import FrameType
from hcfs.store.log import LogWriter
from hcfs.store.page import Placements
from hcfs.store.region_header import RegionHeader, write_headers
from hcfs.store.superblock import BLOCK
from hcfs.store.unaligned import read_bytes

log = logging.getLogger(__name__)

ReadTable = Callable[[int, int], bytes]
"""(device offset, length) -> checksums"""

CHECKPOINT_TRIES = 4
"""checkpoints in a row, each of which more changes came in meanwhile than the new log has room for"""
CATCH_UP_ROUNDS = 16
CATCH_UP_BATCH = 1024
CATCH_UP_REST = 64
"""transactions: a round ends the catching up when it leaves no more, or after so many rounds"""
PAUSE = 0.002
"""seconds after each page of a checkpoint that nobody waits for: the interpreter is free then, and a page takes about
as long"""


class Durability(Core):
    """The part of the store that writes the log."""

    def commit_pending(self) -> bool:
        """Whether a change waits to be made durable."""
        return bool(self.queue or self.freed)

    def commit(self) -> None:
        """Make durable everything that is visible now. Blocks; for a whole checkpoint only where the log is full.
        Raises DeviceError, after which the store is read-only; ReadOnlyStore ever after, and when something is pending
        on a store that is read-only anyway; MetadataFull, after which everything is still pending."""
        while True:
            with self.commit_lock:
                writer = self.writer
                if self._commit():
                    return
            with self.checkpoint_lock:
                # The log is full. What the transactions did is in memory already, so a checkpoint holds them: one that
                # ended while this thread waited, or another.
                if self.writer is writer:
                    self._checkpoint(self._read_or_give_up_table, forced=True)

    def _commit(self) -> bool:
        """The commit lock is held. False, and everything still pending, when the log has no room."""
        with self.lock:
            self._require_going()
            if not self.queue and not self.freed and not self.data_written:
                return True
            if self.queue:
                self.require_writable()
            elif self.writer is None or self.state == "read-only":
                return True
        self.queue_touches()
        with self.lock:
            payloads, self.queue = self.queue, []
            freed, self.freed = self.freed, []
            first = self.next_sequence - len(payloads)
            data_written, self.data_written = self.data_written, False
        try:
            if data_written:
                self.device.flush()
            if payloads and not self._append(payloads, first):
                with self.lock:
                    self.queue, self.freed = payloads + self.queue, freed + self.freed
                return False
        except BaseException as error:
            self.fail_stop(error)
            raise
        with self.lock:
            self.settle_freed(freed)
            self.counters.group_commits += 1
        return True

    def _append(self, payloads: list[bytes], first: int) -> bool:
        """Write a batch and flush it; False, and nothing written, when the log has no room."""
        assert self.writer is not None
        if not self.writer.append(payloads, first):
            return False
        self.device.flush()
        return True

    def flush_touches(self) -> None:
        """Queue the accesses noted since the last commit, so that the next commit makes them durable. Memory only."""
        if self.touched and self.state != "read-only":
            self.queue_touches()

    @property
    def checkpoint_due(self) -> bool:
        """Whether the log has grown past half of its room: a checkpoint now spares a writer the wait later."""
        if self.writer is None or self.state == "read-only":
            return False
        return self.writer.half_full

    def checkpoint(self) -> None:
        """Commit, then write the other region and make it current. Blocks; others work on meanwhile, and commit too.
        Raises as `commit`; UnreadableChecksums, with nothing changed."""
        with self.checkpoint_lock:
            with self.commit_lock:
                # Where the log has no room for what is pending, the checkpoint makes it durable.
                self._commit()
            self.require_writable()
            self._checkpoint(self._read_table, forced=False)

    def rewrite_metadata(self) -> None:
        """Commit, and write both regions anew, so that no name, attribute or checksum of what is gone stays on the
        medium. Blocks; others work on meanwhile, and commit too. Raises as `checkpoint`; what was written by then is
        whole."""
        with self.checkpoint_lock:
            for _ in self.superblock.regions:
                with self.commit_lock:
                    self._commit()
                self.require_writable()
                self._checkpoint(self._read_table, forced=False, clear=True)

    def _checkpoint(self, read_table: ReadTable, *, forced: bool, clear: bool = False) -> None:
        """Write the other region and make it current. The checkpoint lock is held. forced: commits wait for it. clear:
        nothing of what that region held before is left.

        Raises MetadataFull, ReadOnlyStore, and UnreadableChecksums if `read_table` does, with nothing changed; after
        any other exception the store has stopped."""
        try:
            self._load_pinned_checksums(read_table)
            if clear:
                # A checkpoint writes no more than it needs. The headers stay, so that a crash finds which region is the
                # younger one.
                body = self.superblock.regions[1 - self.region] + 1
                self.device.zero(body * BLOCK, (self.superblock.header_copy - 1) * BLOCK)
            for _ in range(CHECKPOINT_TRIES):
                if self._try_checkpoint(read_table, pause=0.0 if forced else PAUSE):
                    return
        except (MetadataFull, ReadOnlyStore, UnreadableChecksums):
            raise
        except BaseException as error:
            self.fail_stop(error)
            raise
        raise MetadataFull(f"{self.device.name}: the metadata region can't hold the changes made during a checkpoint")

    def _try_checkpoint(self, read_table: ReadTable, pause: float) -> bool:
        """Pages while others commit to the old region's log, then the changes since, then the switch, for which alone
        commits wait. False when the new log had no room for the changes."""
        number = 1 - self.region
        # Counted up for every try: frames that one leaves must not verify in the next.
        self.region_generation += 1
        generation = self.region_generation
        start = self.superblock.regions[number] * BLOCK
        length = self.superblock.header_copy * BLOCK
        region_seed = frame.seed(self.superblock.uuid, generation)
        with self.lock:
            self.since_checkpoint = []
            checkpoint_seq = self.next_sequence - 1
        try:
            written, pages, placed = self._write_pages(start, length, region_seed, read_table, pause)
            log_block = 1 + -(-written // BLOCK)
            writer = LogWriter(
                self.device, self.superblock.uuid, start, length, generation, log_block * BLOCK, log_block * BLOCK
            )
            following = self._catch_up(writer, checkpoint_seq + 1)
            if following is None:
                return False
            with self.commit_lock:
                if not self._switch(number, writer, checkpoint_seq, following, written, pages):
                    return False
        finally:
            with self.lock:
                self.since_checkpoint = None
        self._place_checksums(placed)
        return True

    def _switch(
        self, number: int, writer: LogWriter, checkpoint_seq: int, following: int, written: int, pages: int
    ) -> bool:
        """Make a region current whose pages are written, and its log up to the transaction before `following`. The
        commit lock is held. False, and nothing done, when the log has no room for the rest."""
        start = self.superblock.regions[number] * BLOCK
        with self.lock:
            since, self.since_checkpoint = self.since_checkpoint or [], None
            if not writer.fits(since):
                return False
            self._require_going()
            # Of the changes made meanwhile all are in the new log; those that came in before were in memory when the
            # pages were made.
            self.queue = []
            freed, self.freed = self.freed, []
            next_serial = self.serial_limit
        try:
            if since:
                writer.append(since, following)
            if writer.room >= BLOCK:
                # A frame of the region's former life never verifies here, but a zero block makes the end plain to see.
                self.device.write(start + writer.at, bytes(BLOCK))
            self.device.flush()
            header = RegionHeader(
                self.region_generation,
                checkpoint_seq,
                written,
                writer.begin // BLOCK,
                pages,
                next_serial,
                time.time_ns(),
            )
            write_headers(self.device, self.superblock, number, header)
        except BaseException as error:
            # Before the commit lock is let go: the old log lacks what was taken from the queue.
            self.fail_stop(error)
            raise
        with self.lock:
            self.writer, self.region = writer, number
            self.settle_freed(freed)
            self.counters.checkpoints += 1
        return True

    def _require_going(self) -> None:
        """Raises ReadOnlyStore when a failed write or flush has stopped the store."""
        if self.stopped:
            raise ReadOnlyStore(f"{self.device.name} is read-only: {self.state_reason}")

    def _catch_up(self, writer: LogWriter, following: int) -> int | None:
        """Write to the new log what was changed since the pages were begun, until little is left for the time in which
        commits wait; the next sequence number, or None when it has no room. Nobody relies on that log yet."""
        for _ in range(CATCH_UP_ROUNDS):
            with self.lock:
                assert self.since_checkpoint is not None
                if len(self.since_checkpoint) <= CATCH_UP_REST:
                    break
                since, self.since_checkpoint = self.since_checkpoint, []
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
        while slot < len(self.index.table):
            self._require_going()
            with self.lock:
                draft = page.draft(self.index, slot)
            slot = draft.next_slot
            payload, at = draft.finish(read_table)
            payload_at = start + BLOCK + written + frame.HEADER_BYTES
            placed.add(at, payload_at)
            encoded = frame.encode(FrameType.PAGE, 0, pages, payload, region_seed)
            pages += 1
            written += len(encoded)
            if BLOCK + written > length:
                raise MetadataFull(f"{self.device.name}: the checkpoint doesn't fit its region of {length} bytes")
            carry += encoded
            whole = len(carry) // BLOCK * BLOCK
            if whole:
                self.device.write(carry_at, carry[:whole])
                carry, carry_at = carry[whole:], carry_at + whole
            if pause:
                time.sleep(pause)
        if carry:
            self.device.write(carry_at, carry.ljust(BLOCK, b"\0"))
        return written, pages, placed

    def _read_table(self, offset: int, length: int) -> bytes:
        """Checksums from the medium. Raises UnreadableChecksums: the read may succeed the next time, and a checkpoint
        can be made then."""
        try:
            return read_bytes(self.device, offset, length)
        except DeviceError as error:
            self.counters.device_errors += 1
            raise UnreadableChecksums(
                f"{self.device.name}: no checkpoint can be made, since the checksums of an object can't be read"
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
        with self.lock:
            pins = self.pins()
        for pin in pins:
            if isinstance(pin.checksums, tuple):
                pin.checksums = read_table(*pin.checksums)

    def _place_checksums(self, placed: Placements) -> None:
        """The checksums of what the pages hold are read from there from now on. Piece by piece: as long as this
        checkpoint's lock is held, where they were before is as good."""
        table = self.index.table
        for piece in placed.pieces():
            with self.lock:
                for slot, oid, generation, offset in piece:
                    if table.id[slot] == oid and table.generation[slot] == generation:
                        table.table_at[slot] = offset
                        table.tables.pop(slot, None)

    def close(self) -> None:
        """Commit and give the device back. Blocks. Raises DeviceError when the commit failed; the device is closed all
        the same."""
        try:
            self.flush_touches()
            if self.commit_pending() or self.data_written:
                self.commit()
        except ReadOnlyStore:
            pass
        finally:
            self.device.close()
