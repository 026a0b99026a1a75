"""Staging: objects that are being written, and what they ask of their store."""

from __future__ import annotations

import stat

from hcfs.store.allocation import Allocation
from hcfs.store.attributes import NAME_MAX, SLOT_MASK, Attributes, Extra, Kind
from hcfs.store.content import Content
from hcfs.store.errors import MetadataFull, ObjectTooLarge
from hcfs.store.extents import EXTENT_BYTES, Extent
from hcfs.store.frame import MAX_PAYLOAD
from hcfs.store.ledger import Ledger
from hcfs.store.locking import lock_held
from hcfs.store.metadata_room import MetadataRoom
from hcfs.store.names import Names
from hcfs.store.object_metadata import ObjectMetadata
from hcfs.store.pins import Pin
from hcfs.store.retention import Retention
from hcfs.store.staged import MAX_GRANULES, Staged
from hcfs.store.superblock import BLOCK
from hcfs.store.table import ROW_BYTES
from hcfs.store.timestamps import now_ns

RECORD_MAX = MAX_PAYLOAD - (5 << 20)
"""Bytes of an object's row, so that with all its names and extended attributes it fits a record and a page"""


class Staging:
    """Takes new objects, and keeps room for what publishing them needs. Thread-safe."""

    def __init__(
        self,
        ledger: Ledger,
        room: MetadataRoom,
        retention: Retention,
        names: Names,
        metadata: ObjectMetadata,
        content: Content,
        allocation: Allocation,
    ) -> None:
        self.lock = ledger.lock
        self._ledger = ledger
        self._room = room
        self._retention = retention
        self._names = names
        self._metadata = metadata
        self._content = content
        self._allocation = allocation
        self.staged: set[Staged] = set()
        """All that are neither published nor abandoned"""
        superblock = ledger.superblock
        self.max_object_bytes = min(MAX_GRANULES, superblock.region_blocks * BLOCK // 32) * superblock.granule
        """Most that an object can have: its checksums must fit one record, and an eighth of the metadata region"""

    def require_possible_size(self, size: int) -> None:
        """ObjectTooLarge for more bytes than any object of this store can have."""
        if size > self.max_object_bytes:
            raise ObjectTooLarge(f"an object can have at most {self.max_object_bytes} bytes on this store")

    def stage(
        self,
        base: int | None,
        *,
        namespace: int,
        mode: int,
        uid: int,
        gid: int,
        xattrs: dict[bytes, bytes] | None = None,
    ) -> Staged:
        """Begin an object: empty, or a view of a committed file `base` whose attributes it then starts with (mode, uid,
        gid are ignored). Memory only. Raises NoSuchObject, ReadOnlyStore, MetadataFull."""
        with self.lock:
            self._ledger.require_writable()
            if base is not None:
                self._ledger.slot(base)
            # Before the pin, which nobody would release if there were no id left.
            oid = self._ledger.new_id()
            pin = self._retention.pin(base) if base is not None else None
            now = now_ns()
            if base is not None:
                extra = self._metadata.extra_of(self._ledger.slot(base))
                attributes = self._metadata.attributes(base)._replace(id=oid, nlink=1, state="staged")
            else:
                extra = Extra(xattrs=dict(xattrs or {}))
                attributes = Attributes(
                    oid,
                    Kind.FILE,
                    stat.S_IFREG | stat.S_IMODE(mode),
                    uid,
                    gid,
                    1,
                    0,
                    0,
                    now,
                    now,
                    now,
                    0,
                    now,
                    "staged",
                )
            self._room.unreserved_objects += 1
            return self._begin(oid, namespace, pin, attributes, extra, in_place=False)

    def stage_in_place(self, oid: int) -> Staged:
        """Begin new content for a committed file that keeps its id. Memory only. Raises NoSuchObject, ReadOnlyStore."""
        with self.lock:
            self._ledger.require_writable()
            pin = self._retention.pin(oid)
            extra = self._metadata.extra_of(self._ledger.slot(oid))
            attributes = self._metadata.attributes(oid)
            return self._begin(oid, self._names.namespace_of(oid), pin, attributes, extra, in_place=True)

    def _begin(
        self, oid: int, namespace: int, base: Pin | None, attributes: Attributes, extra: Extra, *, in_place: bool
    ) -> Staged:
        ledger, content, allocation = self._ledger, self._content, self._allocation
        staged = Staged(
            *(ledger, content, allocation, self, oid, namespace, base, attributes, extra), in_place=in_place
        )
        self.staged.add(staged)
        return staged

    # --- room for metadata -----------------------------------------------------------------------------------------

    def require_row(self) -> None:
        """Whether one more file can be begun: its row, and those of all that were begun. Memory only. Raises
        MetadataFull: the caller may make room and ask again."""
        with self.lock:
            self._room.require(ROW_BYTES + NAME_MAX, 1)

    def admit(self, staged: Staged) -> None:
        """Reserve a row, and metadata for the object as it is, before its first byte is taken: so that a full store is
        told to the writer and not at the end. Evicts for it if need be. Blocks. Raises MetadataFull, ReadOnlyStore."""
        self._reserve(staged, ROW_BYTES + NAME_MAX + EXTENT_BYTES + 4 + len(staged.extra.encode()))

    def reserve(self, staged: Staged, extents: tuple[Extent, ...], checksums: bytes) -> None:
        """Keep metadata room for publishing; evicts for it if need be. Blocks. Raises MetadataFull, ReadOnlyStore."""
        extra_bytes = len(staged.extra.encode())
        needed = ROW_BYTES + NAME_MAX + len(extents) * EXTENT_BYTES + len(checksums) + extra_bytes
        if needed > RECORD_MAX:
            raise ObjectTooLarge(
                f"an object in {len(extents)} extents needs a metadata record of {needed} bytes, more than {RECORD_MAX}"
            )
        self._reserve(staged, needed)
        with self.lock:
            staged.sealed_extents, staged.sealed_checksums = extents, checksums

    def _reserve(self, staged: Staged, needed: int) -> None:
        while True:
            with self.lock:
                self._ledger.require_writable()
                row = 1 if staged.reserved_bytes == 0 and not staged.in_place else 0
                shortage = self._room.shortage(needed - staged.reserved_bytes, row)
                if not shortage:
                    self._room.reserved_bytes += needed - staged.reserved_bytes
                    self._room.reserved_objects += row
                    self._room.unreserved_objects -= row
                    staged.reserved_bytes = needed
                    return
            make_room = self._ledger.make_room
            if make_room is None or not make_room(0):
                remedy = "remove objects, or format with a larger --max-objects"
                error = MetadataFull(f"{self._ledger.device.name}: {shortage}, and nothing can be evicted; {remedy}")
                self._room.note_full(error)
                raise error

    @lock_held
    def discard(self, staged: Staged, runs: list[tuple[int, int]]) -> None:
        """A staged object was abandoned and is idle: its blocks and its id's slot are free. Lock held."""
        self._allocation.give_back(staged, runs)
        self.end(staged)
        if not staged.in_place:
            self._ledger.index.table.give_slot(staged.id & SLOT_MASK)

    @lock_held
    def end(self, staged: Staged) -> None:
        """A staged object is none any more: what was reserved for it is free. Lock held."""
        self.staged.discard(staged)
        self._room.reserved_bytes -= staged.reserved_bytes
        if staged.reserved_bytes and not staged.in_place:
            self._room.reserved_objects -= 1
        elif not staged.in_place:
            self._room.unreserved_objects -= 1
        staged.reserved_bytes = 0
