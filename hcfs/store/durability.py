"""Making changes durable: group commit. Order of writes: docs/format.md, "Invariants"."""

from __future__ import annotations

from hcfs.store.checkpoints import Checkpoints
from hcfs.store.errors import ReadOnlyStore
from hcfs.store.ledger import Ledger
from hcfs.store.retention import Retention
from hcfs.store.superblock import BLOCK

BACKLOG_MAX = 4 << 20


class Durability:
    """What writes the log. Thread-safe."""

    def __init__(self, ledger: Ledger, retention: Retention) -> None:
        self._ledger = ledger
        self._retention = retention
        self._checkpoints = Checkpoints(ledger, retention)

    def commit_pending(self) -> bool:
        """Whether a change waits to be made durable."""
        return bool(self._ledger.queue or self._retention.freed)

    def commit(self) -> None:
        """Make durable everything that is visible now. Blocks; for a whole checkpoint only where the log is full.
        Raises DeviceError, after which the store is read-only; ReadOnlyStore ever after, and when something is pending
        on a store that is read-only anyway; MetadataFull, after which everything is still pending."""
        ledger = self._ledger
        while True:
            with ledger.commit_lock:
                writer = ledger.writer
                if self._commit():
                    return
            with ledger.checkpoint_lock:
                # The log is full. What the transactions did is in memory already, so a checkpoint holds them: one that
                # ended while this thread waited, or another.
                if ledger.writer is writer:
                    self._checkpoints.write(forced=True)

    def _commit(self) -> bool:
        """Commit lock held. False, and everything still pending, when the log has no room."""
        ledger = self._ledger
        with ledger.lock:
            ledger.require_going()
            if not ledger.queue and not self._retention.freed and not ledger.data_written:
                return True
            if ledger.queue:
                ledger.require_writable()
            elif ledger.writer is None or ledger.state == "read-only":
                return True
        ledger.queue_touches()
        with ledger.lock:
            payloads, ledger.queue = ledger.queue, []
            freed = self._retention.take_freed()
            first = ledger.next_sequence - len(payloads)
            data_written, ledger.data_written = ledger.data_written, False
        try:
            if data_written:
                ledger.device.flush()
            if payloads and not self._append(payloads, first):
                with ledger.lock:
                    ledger.queue = payloads + ledger.queue
                    self._retention.freed[:0] = freed
                return False
        except BaseException as error:
            ledger.fail_stop(error)
            raise
        with ledger.lock:
            self._retention.settle(freed)
            ledger.counters.group_commits += 1
        return True

    def _append(self, payloads: list[bytes], first: int) -> bool:
        """Write a batch and flush it; False, and nothing written, when the log has no room."""
        assert self._ledger.writer is not None
        if not self._ledger.writer.append(payloads, first):
            return False
        self._ledger.device.flush()
        return True

    @property
    def backlog_full(self) -> bool:
        """Whether so much waits that whoever adds long transactions should commit first: the queue is memory, and the
        changes made during a checkpoint must fit the log behind it."""
        limit = min(BACKLOG_MAX, self._ledger.superblock.region_blocks * BLOCK // 16)
        return self._ledger.backlog_bytes > limit

    def flush_touches(self) -> None:
        """Queue the accesses noted since the last commit, so that the next commit makes them durable. Memory only."""
        if self._ledger.touched and self._ledger.state != "read-only":
            self._ledger.queue_touches()

    @property
    def checkpoint_due(self) -> bool:
        """Whether the log has grown past half of its room: a checkpoint now spares a writer the wait later."""
        ledger = self._ledger
        if ledger.writer is None or ledger.state == "read-only":
            return False
        return ledger.writer.half_full

    def checkpoint(self) -> None:
        """Commit, then write the other region and make it current. Blocks; others work on meanwhile, and commit too.
        Raises as `commit`; UnreadableChecksums, with nothing changed."""
        ledger = self._ledger
        with ledger.checkpoint_lock:
            with ledger.commit_lock:
                # Where the log has no room for what is pending, the checkpoint makes it durable.
                self._commit()
            ledger.require_writable()
            self._checkpoints.write(forced=False)

    def rewrite_metadata(self) -> None:
        """Commit, and write both regions anew, so that no name, attribute or checksum of what is gone stays on the
        medium. Blocks; others work on meanwhile, and commit too. Raises as `checkpoint`; what was written by then is
        whole."""
        ledger = self._ledger
        with ledger.checkpoint_lock:
            for _ in ledger.superblock.regions:
                with ledger.commit_lock:
                    self._commit()
                ledger.require_writable()
                self._checkpoints.write(forced=False, clear=True)

    def close(self) -> None:
        """Commit and give the device back. Blocks. Raises DeviceError when the commit failed; the device is closed all
        the same."""
        try:
            self.flush_touches()
            if self.commit_pending() or self._ledger.data_written:
                self.commit()
        except ReadOnlyStore:
            pass
        finally:
            self._ledger.device.close()
