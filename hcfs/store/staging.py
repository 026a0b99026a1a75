"""Staging and publishing: how written objects come to be committed ones."""

from __future__ import annotations

import stat
import time

from hcfs.store.accounts import Account
from hcfs.store.attributes import NAME_MAX, Attributes, Extra, Kind, kind_of
from hcfs.store.content import Content
from hcfs.store.errors import (
    IsADirectory,
    MetadataFull,
    NameExists,
    NoSpace,
    NotPermitted,
    ObjectTooLarge,
    QuotaExceeded,
    StagedFailed,
)
from hcfs.store.extents import EXTENT_BYTES, Extent, blocks_of
from hcfs.store.frame import MAX_PAYLOAD
from hcfs.store.names import Names, check_name
from hcfs.store.space import Share
from hcfs.store.staged import MAX_GRANULES, Staged
from hcfs.store.superblock import BLOCK
from hcfs.store.table import ROW_BYTES, Row
from hcfs.store.timestamps import now_ns
from hcfs.store.tree import ROOT_SLOT

SEGMENT_BLOCKS = 1024
"""most blocks allocated ahead of a writer, 4 MiB: objects written side by side still get long runs"""
LARGE_WRITE_BLOCKS = 256
"""a first write this long, the kernel's largest request, belongs to a large object"""
AHEAD_SHARE = 16
"""blocks are allocated ahead of a writer while its account may take so many times as many: what is ahead of several
writers mustn't use up the quota that others of them need"""

WITHHELD_S = 5.0
"""most that a writer waits for a discard"""

RECORD_MAX = MAX_PAYLOAD - (5 << 20)
"""bytes of an object's row, so that with all its names and extended attributes it fits a record and a page"""


class Staging(Names, Content):
    """The part of the store that takes new objects."""

    @property
    def max_object_bytes(self) -> int:
        """Most bytes an object can have: its checksums must fit one record, and an eighth of the metadata region."""
        return min(MAX_GRANULES, self.superblock.region_blocks * BLOCK // 32) * self.superblock.granule

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
            self.require_writable()
            if base is not None:
                self.slot(base)
            # Before the pin, which nobody would release if there were no id left.
            oid = self.new_id()
            pin = self.pin(base) if base is not None else None
            now = now_ns()
            if base is not None:
                extra = self.extra_of(self.slot(base))
                attributes = self.attributes(base)._replace(id=oid, nlink=1, state="staged")
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
            self.staged_objects += 1
            self.unreserved_objects += 1
            staged = Staged(self, oid, namespace, pin, attributes, extra, in_place=False)
            self.staged.add(staged)
            return staged

    def stage_in_place(self, oid: int) -> Staged:
        """Begin new content for a committed file that keeps its id. Memory only. Raises NoSuchObject, ReadOnlyStore."""
        with self.lock:
            self.require_writable()
            pin = self.pin(oid)
            extra = self.extra_of(self.slot(oid))
            self.staged_objects += 1
            staged = Staged(self, oid, self.namespace_of(oid), pin, self.attributes(oid), extra, in_place=True)
            self.staged.add(staged)
            return staged

    # --- what a staged object asks for -----------------------------------------------------------------------------

    def assign(self, staged: Staged, account: Account) -> None:
        """Count a staged object's blocks for `account` from now on, as its name says whose it will be. Memory only.
        Raises QuotaExceeded, with nothing changed, when they don't fit."""
        with self.lock:
            former, blocks = staged.account, staged.charged
            if account == former:
                return
            former.charge(-blocks)
            if blocks and account.allowance() < blocks:
                former.charge(blocks)
                raise QuotaExceeded(account.refusal(blocks))
            account.charge(blocks)
            staged.account = account

    def allocate(self, staged: Staged, count: int, near: int | None) -> list[tuple[int, int]]:
        """Blocks for a staged object: (block, count) runs of at least `count` together, more than that only as a single
        run; adjacent to block `near` where possible. Blocks while room is made. Raises NoSpace, QuotaExceeded."""
        ahead = SEGMENT_BLOCKS if count >= LARGE_WRITE_BLOCKS else min(staged.blocks_held, SEGMENT_BLOCKS)
        wanted = max(count, ahead)
        waited = False
        while True:
            with self.lock:
                self.require_writable()
                account = staged.account
                fits = account.allowance() >= count
                runs = self._take(staged, count, wanted, near) if fits else None
                if runs is not None:
                    return runs
                pending = self.settling_blocks > 0
            if not fits:
                if not account.make_room(count):
                    raise QuotaExceeded(account.refusal(count))
                continue
            if pending:
                self.commit()
                with self.lock:
                    fits = staged.account.allowance() >= count
                    runs = self._take(staged, count, count, near) if fits else None
                if runs is not None:
                    return runs
                if not fits:
                    continue  # others of the owner took it meanwhile: no reason to evict elsewhere
            if self.make_room is None or not self.make_room(count):
                if not waited and self._wait_for_withheld():
                    waited = True
                    continue
                raise NoSpace(
                    f"{self.device.name} is full: {count * BLOCK} bytes are wanted, {self.space.free * BLOCK}"
                    " are free and nothing can be evicted"
                )

    def _take(self, staged: Staged, count: int, wanted: int, near: int | None) -> list[tuple[int, int]] | None:
        """Allocate, and charge the object's account, which has room for `count`."""
        if wanted > count and staged.account.allowance() < AHEAD_SHARE * wanted:
            wanted = count
        runs = self._allocate(count, wanted, near)
        if runs is not None:
            staged.charge(sum(blocks for _, blocks in runs))
        return runs

    def _wait_for_withheld(self) -> bool:
        """Wait until blocks that are just being discarded or wiped are free again; False when there are none."""
        with self.restored:
            return bool(self.space.withheld) and self.restored.wait(WITHHELD_S)

    def _allocate(self, count: int, wanted: int, near: int | None) -> list[tuple[int, int]] | None:
        space = self.space
        if wanted > count and space.free < 4 * wanted:
            wanted = count
        if near is not None and space.free >= count:
            taken = space.extend(near, wanted)
            if taken >= count:
                return [(near, taken)]
            if taken:
                rest = space.stage(count - taken)
                assert rest is not None
                return [(near, taken), *rest]
        if space.allocator.largest_run >= wanted:
            return space.stage(wanted)
        return space.stage(count)

    def give_back(self, staged: Staged, runs: list[tuple[int, int]]) -> None:
        """Free staged blocks that no record ever named. The caller holds the lock."""
        self.space.release(Share.STAGED, runs)
        staged.charge(-sum(count for _, count in runs))

    def require_row(self) -> None:
        """Whether one more file can be begun: its row, and those of all that were begun. Memory only. Raises
        MetadataFull: the caller may make room and ask again."""
        with self.lock:
            self.require_metadata(ROW_BYTES + NAME_MAX, 1)

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
                self.require_writable()
                row = 1 if staged.reserved_bytes == 0 and not staged.in_place else 0
                shortage = self.metadata_shortage(needed - staged.reserved_bytes, row)
                if not shortage:
                    self.reserved_bytes += needed - staged.reserved_bytes
                    self.reserved_objects += row
                    self.unreserved_objects -= row
                    staged.reserved_bytes = needed
                    return
            if self.make_room is None or not self.make_room(0):
                remedy = "remove objects, or format with a larger --max-objects"
                error = MetadataFull(f"{self.device.name}: {shortage}, and nothing can be evicted; {remedy}")
                self.note_full(error)
                raise error

    def discard_staged(self, staged: Staged, runs: list[tuple[int, int]]) -> None:
        """A staged object was abandoned and is idle: its blocks and its id's slot are free. The caller holds the
        lock."""
        self.give_back(staged, runs)
        self._end_staged(staged)
        if not staged.in_place:
            self.index.table.give_slot(self.slot_number(staged.id))

    def _end_staged(self, staged: Staged) -> None:
        self.staged_objects -= 1
        self.staged.discard(staged)
        self.reserved_bytes -= staged.reserved_bytes
        if staged.reserved_bytes and not staged.in_place:
            self.reserved_objects -= 1
        elif not staged.in_place:
            self.unreserved_objects -= 1
        staged.reserved_bytes = 0

    # --- publishing ------------------------------------------------------------------------------------------------

    def publish(self, staged: Staged, parent: int, name: bytes, *, replace: bool = True) -> int:
        """Commit a sealed object under a name; its id, which stays. Visible at once, durable with the next commit.
        Memory only.

        Raises StagedFailed, NameExists, IsADirectory, NotPermitted, NoSuchObject, ReadOnlyStore; the object then stays
        staged."""
        check_name(name)
        with self.lock:
            self._require_publishable(staged)
            with self.change() as transaction:
                parent_slot = self._directory(parent)
                if parent_slot == ROOT_SLOT:
                    raise NotPermitted("files can't be made at the mount's root; make the file inside a namespace")
                target = self.index.tree.lookup(parent_slot, name)
                if target and not replace:
                    raise NameExists(f"{name!r} exists")
                if target and kind_of(self.index.table.mode[target]) is Kind.DIRECTORY:
                    raise IsADirectory(f"{name!r} is a directory")
                if target:
                    self._take_name(transaction, parent, name, target)
                transaction.put(self._row(staged))
                transaction.name(parent, name, staged.id)
                self._count_published(staged)
                self.files += 1
                self.observe_added(self.slot(staged.id))
            return staged.id

    def publish_in_place(self, staged: Staged) -> int:
        """Commit a sealed object that was begun with `stage_in_place`: the object gets its bytes, and keeps id, names
        and attributes. Memory only. Raises as `publish`; an object that lost its last name meanwhile gives
        StagedFailed."""
        with self.lock:
            self._require_publishable(staged)
            slot = self.index.table.slot(staged.id)
            if not slot or not staged.in_place or not self.index.tree.names(slot):
                raise StagedFailed(f"object {staged.id} is gone: its new content is not kept")
            with self.change() as transaction:
                old_extents, old_blocks = self.index.table.extents(slot), self.index.table.blocks(slot)
                new_blocks = blocks_of(staged.sealed_extents)
                self.observe_removed(slot)
                self.free_extents(staged.id, Share.USED, old_extents)
                transaction.put(self._row(staged))
                if self.pinned(staged.id):
                    self.space.pinned_used += new_blocks - old_blocks
                self._count_published(staged)
                self.observe_added(slot)
            return staged.id

    def _require_publishable(self, staged: Staged) -> None:
        self.require_writable()
        if staged.ended or not staged.sealed:
            reason = "has ended" if staged.ended else "isn't sealed"
            raise StagedFailed(f"staged object {staged.id} {reason}: it can't be published")
        if not staged.modified and staged.base is not None:
            raise StagedFailed(
                f"staged object {staged.id} is an unmodified view of object {staged.base}: there is nothing to publish"
            )

    def _row(self, staged: Staged) -> Row:
        if staged.in_place:
            a = self.attributes(staged.id)
            extra = self.index.table.extra.get(self.slot(staged.id), b"")
            mtime = staged.attributes().mtime_ns
        else:
            a, extra, mtime = staged.attributes(), staged.extra.encode(), staged.attributes().mtime_ns
        return Row(
            *(
                staged.id,
                a.mode,
                a.uid,
                a.gid,
                0,
                staged.size,
                a.atime_ns,
                mtime,
                a.ctime_ns,
                self.next_sequence,
                time.time_ns(),
            ),
            *(staged.sealed_extents, staged.sealed_checksums, extra),
        )

    def _count_published(self, staged: Staged) -> None:
        blocks = blocks_of(staged.sealed_extents)
        self.space.move(Share.STAGED, Share.USED, blocks)
        staged.charge(-blocks)
        self._end_staged(staged)
        staged.end_published()
        self.counters.commits += 1
