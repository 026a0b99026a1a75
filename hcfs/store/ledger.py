"""The ledger: what all parts of a store share. What there is, what waits to be written, and the locks.

Locks: `lock` guards everything in memory and is never held across I/O; `commit_lock` serialises writers of the current
log and is taken before it; `checkpoint_lock` is taken before both, by whoever writes the other region. Nothing here
waits while it holds `lock`. "Lock held.", in a docstring of the store's, means `lock`: see `locking`."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import compress, islice
from types import TracebackType
from typing import Literal, Protocol

from hcfs.device import BlockDevice, BufferPool, DeviceError
from hcfs.store.attributes import Attributes, Flags, Kind, kind_of
from hcfs.store.counters import Counters
from hcfs.store.errors import MetadataFull, NoSuchObject, ReadOnlyStore
from hcfs.store.granule import Checksummer
from hcfs.store.locking import lock_held
from hcfs.store.log import LogWriter
from hcfs.store.space import Space
from hcfs.store.superblock import Superblock
from hcfs.store.timestamps import now_ns
from hcfs.store.transactions import MetadataIndex, Transaction

log = logging.getLogger(__name__)

SERIAL_STEP = 1 << 16
"""Serials reserved by one SERIAL item"""

TOUCHES_A_RECORD = 4096


class Observer(Protocol):
    """Told, with the lock held, of committed files that come and go; may not call the store."""

    def added(self, oid: int, namespace: int, blocks: int, name: bytes) -> None: ...

    def removed(self, oid: int, namespace: int, blocks: int, name: bytes) -> None: ...


class Ledger:
    """State of a recovered store."""

    def __init__(
        self,
        device: BlockDevice,
        pool: BufferPool,
        superblock: Superblock,
        index: MetadataIndex,
        space: Space,
        *,
        writer: LogWriter | None,
        region: int,
        region_generation: int,
        next_sequence: int,
        state: Literal["ok", "read-only", "degraded"],
        state_reason: str,
    ) -> None:
        self.device = device
        self.pool = pool
        self.superblock = superblock
        self.index = index
        self.space = space
        self.checksummer = Checksummer(superblock.uuid, superblock.granule)
        self.counters = Counters()
        self.state = state
        self.state_reason = state_reason
        self.observer: Observer | None = None
        self.make_room: Callable[[int], bool] | None = None
        """Called without the store's locks, with the blocks that are wanted, or 0 for room in the metadata; True: try
        again"""
        self.on_pending: Callable[[], None] | None = None
        """Called, with the lock held, when a change waits for a commit and none did before; must only signal"""
        self.lock = threading.RLock()
        self.checkpoint_lock = threading.Lock()
        self.commit_lock = threading.Lock()
        self.writer = writer
        self.region = region
        self.region_generation = region_generation
        self.next_sequence = next_sequence
        self.queue: list[bytes] = []
        """Payloads that aren't durable yet, in sequence order up to next_sequence"""
        self._queued_bytes = 0
        self.since_checkpoint: list[bytes] | None = None
        """Payloads queued since the checkpoint that is under way began"""
        self.data_written = False
        """Data was written since the last flush"""
        self.stopped = False
        """A log write or a flush failed: nothing that waits for a commit will ever be durable"""
        self.touched: dict[int, int] = {}
        """Accesses, by the object's id, that no transaction holds yet"""
        self.serial_limit = index.next_serial
        self.quarantined_slots = dict.fromkeys(index.table.quarantined_slots())
        """As a set that keeps its order"""
        modes = Counter(compress(index.table.mode, index.table.id))
        files = sum(count for mode, count in modes.items() if kind_of(mode) is Kind.FILE)
        self.files = files - len(self.quarantined_slots)

    # --- changes ---------------------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """Whether changes can be made durable."""
        return self.state != "read-only" and self.writer is not None

    def require_writable(self) -> None:
        """Raises ReadOnlyStore."""
        if self.state == "read-only" or self.writer is None:
            raise ReadOnlyStore(f"{self.device.name} is read-only: {self.state_reason or 'it was mounted so'}")

    def change(self) -> LedgerChange:
        """One transaction: atomic, visible at once, durable with the next commit. Holds the lock; the body must check
        everything before its first item, since items that were added stay. Entering it raises ReadOnlyStore."""
        return LedgerChange(self)

    @lock_held
    def enqueue(self, payload: bytes) -> None:
        """Queue a transaction that was applied. Lock held."""
        first = not self.queue
        self._queued_bytes = len(payload) if first else self._queued_bytes + len(payload)
        self.queue.append(payload)
        self.next_sequence += 1
        if self.since_checkpoint is not None:
            self.since_checkpoint.append(payload)
        if first and self.on_pending is not None:
            self.on_pending()

    def queue_touches(self) -> None:
        """Queue the accesses noted so far. Recency goes along with a commit, so that it costs no write of its own. A
        record at a time: others work on between them."""
        with self.lock:
            touched, self.touched = self.touched, {}
        items = iter(touched.items())
        while record := dict(islice(items, TOUCHES_A_RECORD)):
            with self.lock:
                transaction = Transaction(self.index, time.time_ns())
                transaction.touch(record)
                self.enqueue(bytes(transaction.payload))

    @lock_held
    def new_id(self) -> int:
        """An id that was never used, with an empty slot; the caller puts a row there, or gives the slot back. Lock
        held."""
        if self.index.next_serial >= self.serial_limit:
            self.serial_limit = self.index.next_serial + SERIAL_STEP
            transaction = Transaction(self.index, now_ns())
            transaction.serial(self.serial_limit)
            self.enqueue(bytes(transaction.payload))
        slot = self.index.table.take_slot()
        if slot > self.index.max_slot:
            self.index.table.give_slot(slot)
            raise MetadataFull(f"{self.device.name}: {self.index.max_slot} objects are in use or being written")
        serial = self.index.next_serial & 0x7FFFFFFF or 1
        self.index.next_serial += 1
        return serial << 32 | slot

    @property
    def backlog_bytes(self) -> int:
        """Of transactions that the next commit will write."""
        return self._queued_bytes if self.queue else 0

    # --- looking ---------------------------------------------------------------------------------------------------

    @lock_held
    def slot(self, oid: int) -> int:
        """The object's slot. Lock held. Raises NoSuchObject."""
        slot = self.index.table.slot(oid)
        if not slot:
            raise NoSuchObject(f"object {oid} is not, or no longer, in the store")
        return slot

    @lock_held
    def attributes(self, slot: int, nlink: int | None = None) -> Attributes:
        """The attributes of a slot's object. Lock held."""
        table = self.index.table
        mode = table.mode[slot]
        return Attributes(
            id=table.id[slot],
            kind=kind_of(mode),
            mode=mode,
            uid=table.uid[slot],
            gid=table.gid[slot],
            nlink=self.index.tree.nlink(slot) if nlink is None else nlink,
            size=table.size[slot],
            blocks=table.blocks(slot),
            atime_ns=table.atime_ns[slot],
            mtime_ns=table.mtime_ns[slot],
            ctime_ns=table.ctime_ns[slot],
            generation=table.generation[slot],
            last_access_ns=table.last_access_ns[slot],
            state="quarantined" if table.flags[slot] & Flags.QUARANTINED else "committed",
        )

    # --- telling the observer --------------------------------------------------------------------------------------

    @lock_held
    def observe_removed(self, slot: int) -> None:
        """Call before a committed file loses its last name or changes it. Lock held."""
        if self.observer is not None and self._observed(slot):
            table, tree = self.index.table, self.index.tree
            namespace = table.id[tree.namespace(slot)]
            self.observer.removed(table.id[slot], namespace, table.blocks(slot), tree.name[slot] or b"")

    @lock_held
    def observe_added(self, slot: int) -> None:
        """Call after a committed file got its first name or a changed one. Lock held."""
        if self.observer is not None and self._observed(slot):
            table, tree = self.index.table, self.index.tree
            namespace = table.id[tree.namespace(slot)]
            self.observer.added(table.id[slot], namespace, table.blocks(slot), tree.name[slot] or b"")

    def _observed(self, slot: int) -> bool:
        return kind_of(self.index.table.mode[slot]) is Kind.FILE and bool(self.index.tree.names(slot))

    # --- device failures -------------------------------------------------------------------------------------------

    def require_going(self) -> None:
        """Raises ReadOnlyStore when a failed write or flush has stopped the store."""
        if self.stopped:
            raise ReadOnlyStore(f"{self.device.name} is read-only: {self.state_reason}")

    def fail_stop(self, error: BaseException) -> None:
        """After a log write or a flush failed nothing may be written any more: what it covered is unknown."""
        with self.lock:
            self.stopped = True
            if isinstance(error, DeviceError):
                self.counters.device_errors += 1
            if self.state != "read-only":
                self.state = "read-only"
                self.state_reason = f"what was changed last couldn't be made durable ({error})"
                log.error("%s turns read-only: %s", self.device.name, self.state_reason)


class LedgerChange:
    """A transaction under way, as a context manager. Made by `Ledger.change`, used once."""

    __slots__ = ("_ledger", "_transaction")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __enter__(self) -> Transaction:
        ledger = self._ledger
        ledger.lock.acquire()
        try:
            ledger.require_writable()
            self._transaction = transaction = Transaction(ledger.index, now_ns())
        except BaseException:
            ledger.lock.release()
            raise
        return transaction

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if not self._transaction.empty:
                self._ledger.enqueue(bytes(self._transaction.payload))
        finally:
            self._ledger.lock.release()
