"""The store's state and what all its parts share: the lock, transactions, pins, freed extents.

Locks: `lock` guards everything in memory and is never held across I/O; `commit_lock` serialises writers of the current
log and is taken before it; `checkpoint_lock` is taken before both, by whoever writes the other region. Nothing here
waits while it holds `lock`."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import compress, islice
from typing import TYPE_CHECKING, Literal, Protocol

from hcfs.device import BlockDevice, BufferPool, DeviceError
from hcfs.store.attributes import SLOT_MASK, Attributes, Flags, Kind, kind_of
from hcfs.store.counters import Counters
from hcfs.store.errors import MetadataFull, NoSuchObject, ReadOnlyStore
from hcfs.store.extents import Extent
from hcfs.store.granule import Checksummer
from hcfs.store.granule_cache import GranuleCache
from hcfs.store.log import LogWriter
from hcfs.store.pins import Pin
from hcfs.store.space import Share, Space
from hcfs.store.superblock import BLOCK, Superblock
from hcfs.store.timestamps import now_ns
from hcfs.store.transactions import MetadataIndex, Transaction

if TYPE_CHECKING:
    from hcfs.store.staged import Staged

log = logging.getLogger(__name__)

SERIAL_STEP = 1 << 16
"""serials reserved by one SERIAL item"""

TOUCHES_A_RECORD = 4096
TOUCHES_MOST = 4 * TOUCHES_A_RECORD
"""accesses that wait for a commit of something else, 2 MiB of memory; more of them are queued at once"""

FULL_SILENCE = 60.0
"""seconds between two lines of the log about full metadata"""

BACKLOG_MAX = 4 << 20

GRANULE_CACHE_SHARE = 8
"""one part in so many of the buffer pool's budget is what the granule cache may hold beside it"""


class Observer(Protocol):
    """Told, under the store's lock, of committed files that come and go; may not call the store."""

    def added(self, oid: int, namespace: int, blocks: int, name: bytes) -> None: ...

    def removed(self, oid: int, namespace: int, blocks: int, name: bytes) -> None: ...


class Core:
    """State of a recovered store; the parts of `Store` work on it."""

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
        self.granules = GranuleCache(pool.budget // GRANULE_CACHE_SHARE)
        self.counters = Counters()
        self.state = state
        self.state_reason = state_reason
        self.observer: Observer | None = None
        self.make_room: Callable[[int], bool] | None = None
        """called without the store's locks, with the blocks that are wanted, or 0 for room in the metadata; True: try
        again"""
        self.on_pending: Callable[[], None] | None = None
        """called, under the lock, when a change waits for a commit and none did before; must only signal"""
        self.lock = threading.RLock()
        self.checkpoint_lock = threading.Lock()
        self.commit_lock = threading.Lock()
        self.restored = threading.Condition(self.lock)
        """notified when withheld blocks are free again"""
        self.writer = writer
        self.region = region
        self.region_generation = region_generation
        self.next_sequence = next_sequence
        self.queue: list[bytes] = []
        """payloads that aren't durable yet, in sequence order up to next_sequence"""
        self._queued_bytes = 0
        self.freed: list[tuple[int, list[tuple[int, int]]]] = []
        """(oid, runs) whose freeing record isn't durable yet"""
        self.since_checkpoint: list[bytes] | None = None
        """payloads queued since the checkpoint that is under way began"""
        self.data_written = False
        """data was written since the last flush"""
        self.stopped = False
        """a log write or a flush failed: nothing that waits for a commit will ever be durable"""
        self.touched: dict[int, int] = {}
        self.staged_objects = 0
        self.staged: set[Staged] = set()
        """all that are neither published nor abandoned"""
        self.reserved_bytes = 0
        """metadata bytes promised to sealed objects"""
        self.reserved_objects = 0
        self.unreserved_objects = 0
        """staged ones that will need a row and have none reserved yet"""
        self._silent_until = 0.0
        self.serial_limit = index.next_serial
        self._pins: dict[int, list[Pin]] = {}
        self._parked: dict[int, list[tuple[int, int]]] = {}
        self._gone: dict[int, Attributes] = {}
        """attributes of objects that were dropped while pinned"""
        self.quarantined_slots = dict.fromkeys(index.table.quarantined_slots())
        """as a set that keeps its order"""
        modes = Counter(compress(index.table.mode, index.table.id))
        files = sum(count for mode, count in modes.items() if kind_of(mode) is Kind.FILE)
        self.files = files - len(self.quarantined_slots)

    # --- changes ---------------------------------------------------------------------------------------------------

    def require_writable(self) -> None:
        """Raises ReadOnlyStore."""
        if self.state == "read-only" or self.writer is None:
            raise ReadOnlyStore(f"{self.device.name} is read-only: {self.state_reason or 'it was mounted so'}")

    @contextmanager
    def change(self) -> Iterator[Transaction]:
        """One transaction: atomic, visible at once, durable with the next commit. Holds the lock; the body must check
        everything before its first item, since items that were added stay."""
        with self.lock:
            self.require_writable()
            transaction = Transaction(self.index, now_ns())
            empty = len(transaction.payload)
            try:
                yield transaction
            finally:
                if len(transaction.payload) > empty:
                    self.enqueue(bytes(transaction.payload))

    def enqueue(self, payload: bytes) -> None:
        """Queue a transaction that was applied; the caller holds the lock."""
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

    def new_id(self) -> int:
        """An id that was never used, with an empty slot; the caller holds the lock and puts a row there, or gives the
        slot back."""
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

    def slot(self, oid: int) -> int:
        """The object's slot. Raises NoSuchObject; the caller holds the lock."""
        slot = self.index.table.slot(oid)
        if not slot:
            raise NoSuchObject(f"object {oid} is not, or no longer, in the store")
        return slot

    # --- metadata room ---------------------------------------------------------------------------------------------

    def metadata_shortage(self, more_bytes: int, more_objects: int) -> str:
        """Why so much more metadata has no room, "" when it has; the caller holds the lock."""
        objects = self.index.table.objects + self.reserved_objects
        if more_objects and objects + more_objects > self.superblock.max_objects:
            return f"the store holds {objects} objects, its limit (max_objects) set by mkfs"
        limit = self.superblock.metadata_limit
        if self.index.checkpoint_bytes + self.reserved_bytes + more_bytes > limit:
            return f"the metadata region is full ({limit} bytes for {objects} objects)"
        return ""

    def require_metadata(self, more_bytes: int, more_objects: int) -> None:
        """Raises MetadataFull; the caller holds the lock. A new object also leaves room for those that were begun."""
        shortage = self.metadata_shortage(more_bytes, more_objects + self.unreserved_objects if more_objects else 0)
        if shortage:
            raise MetadataFull(f"{self.device.name}: {shortage}; remove objects, or format with a larger --max-objects")

    def note_full(self, error: MetadataFull) -> None:
        """Say in the log that metadata has no room and nothing could be evicted; once a minute, however many calls fail
        for it."""
        if time.monotonic() >= self._silent_until:
            self._silent_until = time.monotonic() + FULL_SILENCE
            log.warning("%s", error)

    @property
    def backlog_bytes(self) -> int:
        """Of transactions that the next commit will write."""
        return self._queued_bytes if self.queue else 0

    @property
    def backlog_limit(self) -> int:
        """Bytes of transactions above which whoever adds long ones should commit first: the queue is memory, and the
        changes made during a checkpoint must fit the log behind it."""
        return min(BACKLOG_MAX, self.superblock.region_blocks * BLOCK // 16)

    # --- pins and freed extents ------------------------------------------------------------------------------------

    def pin(self, oid: int) -> Pin:
        """Pin an object. Memory only. Raises NoSuchObject."""
        with self.lock:
            slot = self.slot(oid)
            pin = Pin(self.index.table, slot, self.unpin)
            pins = self._pins.setdefault(oid, [])
            if not pins and not self.index.table.flags[slot] & Flags.QUARANTINED:
                self.space.pinned_used += self.index.table.blocks(slot)
            pins.append(pin)
            return pin

    def unpin(self, pin: Pin) -> None:
        with self.lock:
            if not pin.mark_released():
                return
            pins = self._pins[pin.oid]
            pins.remove(pin)
            if pins:
                return
            del self._pins[pin.oid]
            slot = self.index.table.slot(pin.oid)
            if slot and not self.index.table.flags[slot] & Flags.QUARANTINED:
                self.space.pinned_used -= self.index.table.blocks(slot)
            self._gone.pop(pin.oid, None)
            self.space.release(Share.PENDING, self._parked.pop(pin.oid, ()))

    def pinned(self, oid: int) -> bool:
        return oid in self._pins

    def pins(self) -> list[Pin]:
        """Every pin there is; the caller holds the lock."""
        return [pin for pins in self._pins.values() for pin in pins]

    def free_extents(self, oid: int, share: Share, extents: tuple[Extent, ...]) -> None:
        """Give up extents that a durable record may still name: reusable when the transaction under way is durable and
        no pin is left. The caller holds the lock and moves `pinned_used` itself."""
        runs = [(e.block, e.count) for e in extents]
        if runs:
            self.space.move(share, Share.PENDING, sum(count for _, count in runs))
            self.freed.append((oid, runs))

    def settle_freed(self, freed: list[tuple[int, list[tuple[int, int]]]]) -> None:
        """The records that freed these are durable: make them free, or park them until the last pin goes. The caller
        holds the lock."""
        for oid, runs in freed:
            if oid in self._pins:
                self._parked.setdefault(oid, []).extend(runs)
            else:
                self.space.release(Share.PENDING, runs)

    def restore(self, runs: list[tuple[int, int]]) -> None:
        """Give back what was withheld from writers."""
        with self.restored:
            self.space.restore(runs)
            self.restored.notify_all()

    def parked_oids(self) -> set[int]:
        """Objects that are gone, or have other content, but for the handles that still read what was; the caller holds
        the lock."""
        return set(self._parked)

    def parked_bytes(self, oids: set[int] | None = None) -> int:
        """Of those objects, None for all, what the handles keep; the caller holds the lock."""
        parked = self._parked if oids is None else {oid: self._parked[oid] for oid in oids & self._parked.keys()}
        return sum(count for runs in parked.values() for _, count in runs) * BLOCK

    @property
    def settling_blocks(self) -> int:
        """Blocks given up that only a commit, one under way perhaps, keeps from being free; the caller holds the
        lock."""
        return self.space.shares[Share.PENDING] - self.space.withheld - self.parked_bytes() // BLOCK

    def drop(self, transaction: Transaction, slot: int) -> None:
        """Remove an object's row and give its extents up. The caller holds the lock and has told the observer."""
        table = self.index.table
        oid, flags, kind = table.id[slot], table.flags[slot], kind_of(table.mode[slot])
        if oid in self._pins:
            self._gone[oid] = self._attributes(slot, nlink=0)
            if not flags & Flags.QUARANTINED:
                self.space.pinned_used -= table.blocks(slot)
        quarantined = bool(flags & Flags.QUARANTINED)
        self.free_extents(oid, Share.QUARANTINED if quarantined else Share.USED, table.extents(slot))
        if quarantined:
            self.quarantined_slots.pop(slot, None)
        elif kind is Kind.FILE:
            self.files -= 1
        transaction.drop(oid)
        self.touched.pop(oid, None)
        table.give_slot(slot)

    # --- telling the observer --------------------------------------------------------------------------------------

    def observe_removed(self, slot: int) -> None:
        """Call before a committed file loses its last name or changes it."""
        if self.observer is not None and self._observed(slot):
            table, tree = self.index.table, self.index.tree
            namespace = table.id[tree.namespace(slot)]
            self.observer.removed(table.id[slot], namespace, table.blocks(slot), tree.name[slot] or b"")

    def observe_added(self, slot: int) -> None:
        """Call after a committed file got its first name or a changed one."""
        if self.observer is not None and self._observed(slot):
            table, tree = self.index.table, self.index.tree
            namespace = table.id[tree.namespace(slot)]
            self.observer.added(table.id[slot], namespace, table.blocks(slot), tree.name[slot] or b"")

    def _observed(self, slot: int) -> bool:
        return kind_of(self.index.table.mode[slot]) is Kind.FILE and bool(self.index.tree.names(slot))

    # --- attributes ------------------------------------------------------------------------------------------------

    def _attributes(self, slot: int, nlink: int | None = None) -> Attributes:
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

    def attributes(self, oid: int) -> Attributes:
        """The object's attributes; of a pinned object that was dropped, the last ones, with nlink 0. Memory only.
        Raises NoSuchObject."""
        with self.lock:
            slot = self.index.table.slot(oid)
            if not slot and oid in self._gone:
                return self._gone[oid]
            return self._attributes(self.slot(oid))

    def replace_gone(self, attributes: Attributes) -> None:
        """Set the attributes of a dropped object that is still pinned; the caller holds the lock."""
        self._gone[attributes.id] = attributes

    def is_gone(self, oid: int) -> bool:
        """Whether the object was dropped while pinned, and still is; the caller holds the lock."""
        return oid in self._gone

    # --- device failures -------------------------------------------------------------------------------------------

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

    def slot_number(self, oid: int) -> int:
        """The slot in an id, whether it is in use or not."""
        return oid & SLOT_MASK
