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
from hcfs.store.items import Transaction
from hcfs.store.log import LogWriter
from hcfs.store.page import Placed
from hcfs.store.region_header import RegionHeader, write_headers
from hcfs.store.superblock import BLOCK
from hcfs.store.unaligned import read_bytes

log = logging.getLogger(__name__)

ReadTable = Callable[[int, int], bytes]
"""(device offset, length) -> checksums"""

TOUCHES_A_RECORD = 4096
CHECKPOINT_TRIES = 4
"""checkpoints in a row, each of which more changes came in meanwhile than the new log has room for"""


class Durability(Core):
    """The part of the store that writes the log."""

    def commit_pending(self) -> bool:
        """Whether a change waits to be made durable."""
        return bool(self.queue or self.freed)

    def commit(self) -> None:
        """Make durable everything that is visible now. Blocks. Raises DeviceError, after which the store is read-only;
        ReadOnlyStore ever after, and when something is pending on a store that is read-only anyway; MetadataFull, after
        which everything is still pending."""
        with self.commit_lock:
            self._commit()

    def _commit(self) -> None:
        with self.lock:
            if self.stopped:
                raise ReadOnlyStore(f"{self.device.name} is read-only: {self.state_reason}")
            if not self.queue and not self.freed and not self.data_written:
                return
            if self.queue:
                self.require_writable()
            elif self.writer is None or self.state == "read-only":
                return
            self._queue_touches()
            payloads, self.queue = self.queue, []
            freed, self.freed = self.freed, []
            first = self.next_sequence - len(payloads)
            data_written, self.data_written = self.data_written, False
        try:
            if data_written:
                self.device.flush()
            if payloads:
                self._append(payloads, first)
        except MetadataFull:
            with self.lock:
                self.queue, self.freed = payloads + self.queue, freed + self.freed
            raise
        except Exception as error:
            self.fail_stop(error)
            raise
        with self.lock:
            self.settle_freed(freed)
            self.counters.group_commits += 1

    def _append(self, payloads: list[bytes], first: int) -> None:
        assert self.writer is not None
        if not self.writer.append(payloads, first):
            # The log is full: what these transactions did is in memory already, so a checkpoint holds them.
            self._checkpoint(self._read_or_give_up_table)
            return
        self.device.flush()

    def _queue_touches(self) -> None:
        """Recency goes along with a commit, so that it costs no write of its own."""
        touched, self.touched = self.touched, {}
        items = list(touched.items())
        for start in range(0, len(items), TOUCHES_A_RECORD):
            transaction = Transaction(self.index, time.time_ns())
            transaction.touch(dict(items[start : start + TOUCHES_A_RECORD]))
            self.enqueue(bytes(transaction.payload))

    def flush_touches(self) -> None:
        """Queue the accesses noted since the last commit, so that the next commit makes them durable. Memory only."""
        with self.lock:
            if self.touched and self.state != "read-only":
                self._queue_touches()

    @property
    def checkpoint_due(self) -> bool:
        """Whether the log has grown past half of its room: a checkpoint now spares a writer the wait later."""
        if self.writer is None or self.state == "read-only":
            return False
        return self.writer.half_full

    def checkpoint(self) -> None:
        """Commit, then write the other region and make it current. Blocks; others work on meanwhile, only commits
        wait. Raises as `commit`; UnreadableChecksums, with nothing changed."""
        with self.commit_lock:
            self._commit()
            self.require_writable()
            try:
                self._checkpoint(self._read_table)
            except (MetadataFull, UnreadableChecksums):
                raise
            except Exception as error:
                self.fail_stop(error)
                raise

    def _checkpoint(self, read_table: ReadTable) -> None:
        """Write the other region and make it current. The commit lock is held, so the old region stays as it is.

        Raises MetadataFull, and what `read_table` raises, with nothing changed; after any other exception the store
        must stop."""
        self._load_pinned_checksums(read_table)
        for _ in range(CHECKPOINT_TRIES):
            if self._try_checkpoint(read_table):
                return
        raise MetadataFull(f"{self.device.name}: the metadata region can't hold the changes made during a checkpoint")

    def _try_checkpoint(self, read_table: ReadTable) -> bool:
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
            written, pages, placed = self._write_pages(start, length, region_seed, read_table)
            log_block = 1 + -(-written // BLOCK)
            writer = LogWriter(
                self.device, self.superblock.uuid, start, length, generation, log_block * BLOCK, log_block * BLOCK
            )
            with self.lock:
                since, self.since_checkpoint = self.since_checkpoint, None
                if not writer.fits(since):
                    return False
                # Of the changes made meanwhile all are written below; those that came in before were in memory when the
                # pages were made.
                self.queue = []
                freed, self.freed = self.freed, []
                next_serial = self.serial_limit
            if since:
                writer.append(since, checkpoint_seq + 1)
            if writer.room >= BLOCK:
                # A frame of the region's former life never verifies here, but a zero block makes the end plain to see.
                self.device.write(start + writer.at, bytes(BLOCK))
            self.device.flush()
            header = RegionHeader(generation, checkpoint_seq, written, log_block, pages, next_serial, time.time_ns())
            write_headers(self.device, self.superblock, number, header)
        finally:
            self.since_checkpoint = None
        with self.lock:
            self.writer, self.region = writer, number
            self._place_checksums(placed)
            self.settle_freed(freed)
            self.counters.checkpoints += 1
        return True

    def _write_pages(
        self, start: int, length: int, region_seed: int, read_table: ReadTable
    ) -> tuple[int, int, list[Placed]]:
        """Write all pages; (bytes written, pages, where each object's checksums stand on the device)."""
        pages, slot, written = 0, 1, 0
        placed: list[Placed] = []
        carry = b""
        carry_at = start + BLOCK
        while slot < len(self.index.table):
            with self.lock:
                draft = page.draft(self.index, slot)
            slot = draft.next_slot
            payload, at = draft.finish(read_table)
            payload_at = start + BLOCK + written + frame.HEADER_BYTES
            placed.extend(Placed(p.slot, p.oid, p.generation, payload_at + p.offset) for p in at)
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

    def _place_checksums(self, placed: list[Placed]) -> None:
        table = self.index.table
        for p in placed:
            if table.id[p.slot] == p.oid and table.generation[p.slot] == p.generation:
                table.table_at[p.slot] = p.offset
                table.tables.pop(p.slot, None)

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
