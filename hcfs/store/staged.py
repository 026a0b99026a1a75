"""Staged objects: bytes written in any order, on the way to becoming a committed object.

Locks of one staged object, in this order: `_alone` (seal and truncate, against writes), `_flow` (block cache),
`_growth` (allocation), then `lock`, the store's. The first three are private to the object and may be held across its
own I/O; the store's never is."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from errno import EIO
from threading import Condition, RLock
from typing import NoReturn, Protocol

from hcfs.device import DeviceError
from hcfs.store.accounts import UNACCOUNTED, Account
from hcfs.store.attributes import Attributes, Extra
from hcfs.store.errors import StagedFailed
from hcfs.store.extents import MAX_LOGICAL, Extent, pieces
from hcfs.store.intervals import Intervals
from hcfs.store.ledger import Ledger
from hcfs.store.locking import lock_held
from hcfs.store.pins import Pin
from hcfs.store.running_checksums import RunningChecksums
from hcfs.store.staged_attributes import StagedAttributes
from hcfs.store.superblock import BLOCK
from hcfs.store.windows import Windows

CACHED_BLOCKS = 64
"""Blocks of small or unaligned writes kept in memory, 256 KiB an object, before they are written out"""
DIRECT_BYTES = 64 << 10
"""Whole blocks of a write at least this long go to the device at once"""
COPY_BYTES = 1 << 20
MAX_GRANULES = 1 << 20
"""Checksums in one record: with granules of 256 KiB an object may have 256 GiB"""


class BaseReader(Protocol):
    """Hands out the bytes of a base."""

    def read(self, pin: Pin, offset: int, length: int) -> memoryview: ...


class BlockSource(Protocol):
    """Where a staged object's blocks come from."""

    def allocate(self, staged: Staged, count: int, near: int | None) -> list[tuple[int, int]]: ...

    def give_back(self, staged: Staged, runs: list[tuple[int, int]]) -> None: ...


class Reservations(Protocol):
    """What publishing will need, kept ready."""

    def require_possible_size(self, size: int) -> None: ...

    def admit(self, staged: Staged) -> None: ...

    def reserve(self, staged: Staged, extents: tuple[Extent, ...], checksums: bytes) -> None: ...

    def discard(self, staged: Staged, runs: list[tuple[int, int]]) -> None: ...


@dataclass(slots=True, eq=False)
class _Change:
    """A write under way, in the granules [first, end)."""

    first: int
    end: int
    contested: bool = False


class Staged(StagedAttributes):
    """One object being written; made by `Staging.stage` and ended by publish or abandon. Thread-safe.

    With a base it is a view of the base's bytes until its first write or size change, and copy-on-write from then
    on."""

    def __init__(
        self,
        ledger: Ledger,
        content: BaseReader,
        blocks: BlockSource,
        reservations: Reservations,
        oid: int,
        namespace: int,
        base: Pin | None,
        attributes: Attributes,
        extra: Extra,
        *,
        in_place: bool,
    ) -> None:
        super().__init__(ledger.lock, attributes, extra)
        self._ledger = ledger
        self._content = content
        self._blocks = blocks
        self._reservations = reservations
        self._device = ledger.device
        self._granule_bytes = ledger.superblock.granule
        self.id = oid
        self.namespace = namespace
        self.in_place = in_place
        self.base = base.oid if base is not None else None
        self._base_pin = base
        self._base_limit = base.size if base is not None else 0
        """Bytes of the base that are still part of this object"""
        self.size = self._base_limit
        self.modified = False
        """Whether anything was written or the size was set"""
        self.failed = 0
        """Errno of the first failure; a failed object can't be published"""
        self._flow = RLock()
        self._direct: list[tuple[int, int]] = []
        """Blocks [first, end) that a long write is bringing to the device past the cache"""
        self._landed = Condition(self._flow)
        """Notified when one of them has ended"""
        self._growth = RLock()
        self._written = Intervals()
        """Blocks whose bytes are on the device"""
        self._cache: dict[int, bytearray] = {}
        """Blocks whose bytes are here, newer than on the device"""
        self._windows = Windows()
        self.account: Account = UNACCOUNTED
        self.charged = 0
        """Blocks that the account was charged with; guarded, as the account is, by the store's lock"""
        self._checksums = RunningChecksums(ledger.checksummer, oid)
        self._changes = 0
        self._sealed_at = -1
        self._active = 0
        """Operations under way"""
        self._under_way: list[_Change] = []
        """Writes under way"""
        self._exclusive = False
        """Whether somebody holds, or waits for, the object alone"""
        self._calm = Condition(ledger.lock)
        """Notified when the last write ended, or the object isn't held alone any more"""
        self._ended = False
        self._released = False
        self.sealed_extents: tuple[Extent, ...] = ()
        self.sealed_checksums = b""
        self.reserved_bytes = 0

    @property
    def blocks_held(self) -> int:
        return self._windows.blocks

    @property
    def granule_bytes(self) -> int:
        """What one checksum covers."""
        return self._granule_bytes

    @lock_held
    def charge(self, blocks: int) -> None:
        """Blocks that came to the object, or below 0 that left it. Lock held."""
        if blocks:
            self.charged += blocks
            self.account.charge(blocks)

    # --- state -----------------------------------------------------------------------------------------------------

    @property
    def sealed(self) -> bool:
        """Whether `seal` succeeded and nothing was written since."""
        return self._sealed_at == self._changes and not self.failed

    @property
    def ended(self) -> bool:
        """Published or abandoned."""
        return self._ended

    # --- writing ---------------------------------------------------------------------------------------------------

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> int:
        """Write all of `data`; its length. Blocks, also for room (eviction). Raises NoSpace, QuotaExceeded,
        DeviceError, ObjectTooLarge, StagedFailed; after any of them the object has failed for good."""
        view = memoryview(data).cast("B")
        with self._operation():
            self._require_size(offset + len(view))
            if not view:
                return 0
            self._admit()
            with self._change(offset, offset + len(view)):
                self._write(offset, view)
                self._checksums.advance(offset, view)
        return len(view)

    def _write(self, offset: int, view: memoryview) -> None:
        first, last = -(-offset // BLOCK), (offset + len(view)) // BLOCK
        if (last - first) * BLOCK >= DIRECT_BYTES:
            body, tail = first * BLOCK - offset, last * BLOCK - offset
            if body:
                self._write_cached(offset, view[:body])
            self._write_direct(first, view[body:tail])
            if tail < len(view):
                self._write_cached(last * BLOCK, view[tail:])
        else:
            self._write_cached(offset, view)
        with self.lock:
            self.size = max(self.size, offset + len(view))
            self._ledger.counters.written_bytes += len(view)

    def truncate(self, size: int) -> None:
        """Set the size; what comes to lie beyond the end is gone, what is gained reads as zeros. Blocks for I/O of one
        block. Raises as `write`."""
        with self._operation():
            self._require_size(size)
            self._admit()
            with self._alone(), self._flow:
                with self.lock:
                    self._note_change()
                if size < self.size:
                    self._cut(size)
                with self.lock:
                    self.size = size

    def _cut(self, size: int) -> None:
        block, within = divmod(size, BLOCK)
        if within and (block in self._written or block in self._cache):
            kept = self._cached_block(block)
            kept[within:] = bytes(BLOCK - within)
        end = block + (1 if within else 0)
        for cached in [b for b in self._cache if b >= end]:
            del self._cache[cached]
        with self.lock:
            self._base_limit = min(self._base_limit, size)
            self._written.cut(end)
            self._checksums.cut(size // self._granule_bytes)

    def _admit(self) -> None:
        if not self.reserved_bytes:
            self._reservations.admit(self)

    def _require_size(self, size: int) -> None:
        self._reservations.require_possible_size(size)

    @contextmanager
    def _change(self, start: int, end: int) -> Iterator[None]:
        """One change of the bytes [start, end). Two at once in one granule can't both say what its checksum is: seal
        computes it anew."""
        granule_bytes = self._granule_bytes
        change = _Change(start // granule_bytes, -(-end // granule_bytes))
        with self.lock:
            while self._exclusive:
                self._calm.wait()
            self._note_change()
            for other in self._under_way:
                if other.first < change.end and change.first < other.end:
                    change.contested = other.contested = True
            self._under_way.append(change)
        try:
            yield
        finally:
            with self.lock:
                self._under_way.remove(change)
                if change.contested:
                    self._checksums.invalidate(change.first, change.end)
                if not self._under_way:
                    self._calm.notify_all()

    @lock_held
    def _note_change(self) -> None:
        """A change begins; it can't be published or sealed before it has ended. Lock held."""
        self._require_open()
        self.modified = True
        self._changes += 1
        self.note_write()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold off writes, after those under way have ended: what is sealed is one moment of the object, and neither a
        block that is being written is given back nor one of the base copied over it."""
        with self.lock:
            while self._exclusive:
                self._calm.wait()
            self._exclusive = True
        try:
            with self.lock:
                while self._under_way:
                    self._calm.wait()
                self._require_open()
            yield
        finally:
            with self.lock:
                self._exclusive = False
                self._calm.notify_all()

    def _write_direct(self, first: int, view: memoryview) -> None:
        """Write whole blocks past the cache. What the cache has of them goes first: written out beside this, by a write
        that fills the cache, it would come over the newer bytes. Writes of parts of them wait, since they begin with
        the bytes on the device."""
        span = first, first + len(view) // BLOCK
        with self._flow:
            for block in [b for b in self._cache if span[0] <= b < span[1]]:
                del self._cache[block]
            self._direct.append(span)
        try:
            self._write_blocks(first, view)
        finally:
            with self._flow:
                self._direct.remove(span)
                self._landed.notify_all()

    def _write_cached(self, offset: int, view: memoryview) -> None:
        with self._flow:
            at = 0
            while at < len(view):
                block, within = divmod(offset + at, BLOCK)
                while any(start <= block < end for start, end in self._direct):
                    self._landed.wait()
                count = min(BLOCK - within, len(view) - at)
                if count == BLOCK:
                    self._cache[block] = bytearray(view[at : at + BLOCK])
                else:
                    self._cached_block(block)[within : within + count] = view[at : at + count]
                at += count
            if len(self._cache) > CACHED_BLOCKS:
                self._write_out()

    def _cached_block(self, block: int) -> bytearray:
        """The block in the cache, brought there first if need be. `_flow` held."""
        cached = self._cache.get(block)
        if cached is None:
            cached = bytearray(BLOCK)
            self._fill(block, memoryview(cached))
            self._cache[block] = cached
        return cached

    def _write_out(self) -> None:
        """Write the cached blocks to the device. `_flow` held."""
        blocks = sorted(self._cache)
        at = 0
        while at < len(blocks):
            run = 1
            while at + run < len(blocks) and blocks[at + run] == blocks[at] + run and run < COPY_BYTES // BLOCK:
                run += 1
            buffer = self._ledger.pool.acquire(run * BLOCK)
            for index in range(run):
                buffer[index * BLOCK : (index + 1) * BLOCK] = self._cache[blocks[at + index]]
            self._write_blocks(blocks[at], buffer)
            for block in blocks[at : at + run]:
                del self._cache[block]
            # Given back before the next is asked for: threads that hold buffers and wait for more wait for each other.
            del buffer
            at += run

    def _write_blocks(self, first: int, view: memoryview) -> None:
        """Write whole blocks to the device."""
        count = len(view) // BLOCK
        with self._growth:
            for start, end in self._windows.gaps(first, first + count):
                self._grow(start, end)
            with self.lock:
                targets = list(self._windows.map(first, first + count))
        for extent in targets:
            at = (extent.logical - first) * BLOCK
            self._device.write(extent.block * BLOCK, view[at : at + extent.count * BLOCK])
        with self.lock:
            self._written.add(first, first + count)
            self._ledger.data_written = True

    def _grow(self, start: int, end: int) -> None:
        """Allocate blocks for [start, end), and some for what is likely to follow. `_growth` held; blocks while room
        is made."""
        near = self._windows.block_before(start)
        limit = self._windows.next_start(start)
        at = start
        for block, count in self._blocks.allocate(self, end - start, near):
            usable = count if limit is None else min(count, limit - at)
            with self.lock:
                self._windows.add(at, block, usable)
                if usable < count:
                    self._blocks.give_back(self, [(block + usable, count - usable)])
            at += usable

    # --- reading own bytes -----------------------------------------------------------------------------------------

    def read(self, offset: int, length: int) -> memoryview:
        """The object's bytes as written so far; short only at its end. Blocks. Raises DeviceError, ChecksumMismatch (of
        the base), StagedFailed (also when it ended meanwhile: its blocks may be another object's by now)."""
        with self._operation(writing=False), self._flow:
            end = min(offset + length, self.size)
            if offset >= end:
                return memoryview(b"")
            first, last = offset // BLOCK, -(-end // BLOCK)
            buffer = memoryview(bytearray((last - first) * BLOCK))
            self._fill(first, buffer)
            self.require_not_ended()
            return buffer[offset - first * BLOCK : end - first * BLOCK]

    def reading(self) -> AbstractContextManager[None]:
        """Keeps the object's blocks its own, or those of the object that it was published as. StagedFailed when it has
        ended."""
        return self._operation(writing=False)

    def require_not_ended(self) -> None:
        """StagedFailed when the object has ended."""
        with self.lock:
            if self._ended:
                self._refuse()

    def whole_granules(self, first: int, last: int) -> tuple[list[Extent], bytes]:
        """Where the granules [first, last] are on the device, and their checksums as they were written, u32
        little-endian each. Memory only. StagedFailed when one of them isn't there whole, or its checksum isn't
        known."""
        granule_bytes = self._granule_bytes
        blocks = granule_bytes // BLOCK
        start, end = first * blocks, (last + 1) * blocks
        with self.lock:
            known = [self._checksums.known(granule, granule_bytes) for granule in range(first, last + 1)]
            checksums = [checksum for checksum in known if checksum is not None]
            if len(checksums) < len(known) or not all(written for _, _, written in self._written.split(start, end)):
                raise StagedFailed(f"staged object {self.id} doesn't have the granules {first} to {last} yet")
            return list(self._windows.map(start, end)), struct.pack(f"<{len(checksums)}I", *checksums)

    def _fill(self, first: int, buffer: memoryview) -> None:
        """Bytes of whole blocks from cache, device and base; zeros elsewhere (the buffer comes zeroed). `_flow`
        held."""
        end = first + len(buffer) // BLOCK
        with self.lock:
            parts = [
                (start, stop, tuple(self._windows.map(start, stop)) if written else None)
                for start, stop, written in self._written.split(first, end)
            ]
        for start, stop, extents in parts:
            part = buffer[(start - first) * BLOCK : (stop - first) * BLOCK]
            if extents is not None:
                for extent in extents:
                    at = (extent.logical - start) * BLOCK
                    self._device.read_into(extent.block * BLOCK, part[at : at + extent.count * BLOCK])
            elif self._base_pin is not None and start * BLOCK < self._base_limit:
                wanted = min(stop * BLOCK, self._base_limit) - start * BLOCK
                for done in range(0, wanted, COPY_BYTES):
                    data = self._content.read(self._base_pin, start * BLOCK + done, min(COPY_BYTES, wanted - done))
                    part[done : done + len(data)] = data
                    del data
        for block, cached in self._cache.items():
            if first <= block < end:
                buffer[(block - first) * BLOCK : (block - first + 1) * BLOCK] = cached

    # --- sealing ---------------------------------------------------------------------------------------------------

    def seal(self) -> None:
        """Bring everything to the device, checksum it, and reserve what publishing needs, so that publishing can't
        fail. Blocks, also for writes that began before; later ones wait. Raises as `write`; idempotent, and undone by
        the next write."""
        with self._operation(), self._alone(), self._flow:
            if self._sealed_at == self._changes:
                return
            if self.modified or self._base_pin is None:
                self._copy_base()
                self._write_out()
                checksums = self._finish_checksums()
                extents = self._finish_extents()
                self._reservations.reserve(self, extents, checksums)
            self._sealed_at = self._changes

    def _copy_base(self) -> None:
        """Make the rest of the base's bytes the object's own."""
        pin, limit = self._base_pin, self._base_limit
        if pin is None or not limit:
            return
        for start, stop, written in list(self._written.split(0, -(-limit // BLOCK))):
            if written:
                continue
            for piece in pieces(pin.extents, start, stop):
                if piece.block >= 0:
                    self._copy_blocks(piece.logical, piece.logical + piece.count)

    def _copy_blocks(self, start: int, stop: int) -> None:
        step = COPY_BYTES // BLOCK
        for first in range(start, stop, step):
            end = min(first + step, stop)
            runs = [b for b in range(first, end) if b not in self._cache]
            if not runs:
                continue
            if len(runs) < end - first:
                for block in runs:
                    self._cached_block(block)
                continue
            buffer = memoryview(bytearray((end - first) * BLOCK))
            self._fill(first, buffer)
            self._write_blocks(first, buffer)
            used = min(end * BLOCK, self.size) - first * BLOCK
            self._checksums.advance(first * BLOCK, buffer[:used])

    def _finish_checksums(self) -> bytes:
        checksummer, granule_bytes = self._ledger.checksummer, self._granule_bytes
        table = []
        for granule, length in enumerate(checksummer.lengths(self.size)):
            crc = self._checksums.known(granule, length)
            if crc is None:
                start = granule * granule_bytes
                buffer = memoryview(bytearray(-(-length // BLOCK) * BLOCK))
                self._fill(start // BLOCK, buffer)
                crc = checksummer.checksum(self.id, granule, buffer[:length])
                self._checksums.set(granule, length, crc)
            table.append(crc)
        return struct.pack(f"<{len(table)}I", *table)

    def _finish_extents(self) -> tuple[Extent, ...]:
        """The written blocks as extents; what was allocated beyond them is given back."""
        with self._growth, self.lock:
            self._written.cut(-(-self.size // BLOCK))
            self._blocks.give_back(self, self._windows.trim(self._written))
            return self._windows.extents()

    # --- ending ----------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Give everything up; idempotent. Space is free at once, or when the I/O under way has ended. Later operations
        raise StagedFailed."""
        with self.lock:
            if self._ended:
                return
            self._ended = True
            self._ledger.counters.abandoned += 1
            self._release_when_idle()

    @lock_held
    def end_published(self) -> None:
        """The store has taken the extents over. Lock held."""
        self._ended = self._released = True
        if self._base_pin is not None:
            self._base_pin.release()

    @lock_held
    def _release_when_idle(self) -> None:
        """What is left to do after the end, as soon as no operation is under way. Lock held."""
        if self._active == 0 and not self._released:
            self._released = True
            self._reservations.discard(self, self._windows.runs())
            self._windows = Windows()
            self._cache.clear()
            if self._base_pin is not None:
                self._base_pin.release()

    @contextmanager
    def _operation(self, *, writing: bool = True) -> Iterator[None]:
        """One call with I/O: refused after the end or a failure, and noted as the failure if a write raises."""
        with self.lock:
            if writing:
                self._require_open()
            elif self._ended:
                self._refuse()
            self._active += 1
        try:
            yield
        except BaseException as error:
            if writing and not self.failed:
                self.failed = getattr(error, "errno", None) or EIO
            if isinstance(error, DeviceError):
                self._ledger.counters.device_errors += 1
            raise
        finally:
            with self.lock:
                self._active -= 1
                if self.ended:
                    self._release_when_idle()

    def _require_open(self) -> None:
        if self._ended or self.failed:
            self._refuse()

    def _refuse(self) -> NoReturn:
        raise StagedFailed(
            f"staged object {self.id} {'has ended' if self._ended else 'failed before'}: what was written is not kept"
        )


assert MAX_GRANULES * 4 < 16 << 20
assert MAX_LOGICAL * BLOCK > MAX_GRANULES << 18
