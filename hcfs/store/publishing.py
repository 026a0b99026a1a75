"""Publishing: how a sealed object comes to be a committed one. Memory only, one transaction."""

from __future__ import annotations

import time

from hcfs.store.attributes import Kind, kind_of
from hcfs.store.errors import IsADirectory, NameExists, NotPermitted, StagedFailed
from hcfs.store.extents import blocks_of
from hcfs.store.ledger import Ledger
from hcfs.store.names import Names, check_name
from hcfs.store.retention import Retention
from hcfs.store.space import Share
from hcfs.store.staged import Staged
from hcfs.store.staging import Staging
from hcfs.store.table import Row
from hcfs.store.tree import ROOT_SLOT


class Publishing:
    """Gives sealed objects their names. Thread-safe."""

    def __init__(self, ledger: Ledger, retention: Retention, names: Names, staging: Staging) -> None:
        self.lock = ledger.lock
        self._ledger = ledger
        self._retention = retention
        self._names = names
        self._staging = staging
        self._table = ledger.index.table
        self._tree = ledger.index.tree

    def publish(self, staged: Staged, parent: int, name: bytes, *, replace: bool = True) -> int:
        """Commit a sealed object under a name; its id, which stays. Visible at once, durable with the next commit.
        Memory only.

        Raises StagedFailed, NameExists, IsADirectory, NotPermitted, NoSuchObject, ReadOnlyStore; the object then stays
        staged."""
        check_name(name)
        with self.lock:
            self._require_publishable(staged)
            with self._ledger.change() as transaction:
                parent_slot = self._names.directory(parent)
                if parent_slot == ROOT_SLOT:
                    raise NotPermitted("files can't be made at the mount's root; make the file inside a namespace")
                target = self._tree.lookup(parent_slot, name)
                if target and not replace:
                    raise NameExists(f"{name!r} exists")
                if target and kind_of(self._table.mode[target]) is Kind.DIRECTORY:
                    raise IsADirectory(f"{name!r} is a directory")
                if target:
                    self._names.take_name(transaction, parent, name, target)
                transaction.put(self._row(staged))
                transaction.name(parent, name, staged.id)
                self._count_published(staged)
                self._ledger.files += 1
                self._ledger.observe_added(self._ledger.slot(staged.id))
            return staged.id

    def publish_in_place(self, staged: Staged) -> int:
        """Commit a sealed object that was begun with `stage_in_place`: the object gets its bytes, and keeps id, names
        and attributes. Memory only. Raises as `publish`; an object that lost its last name meanwhile gives
        StagedFailed."""
        with self.lock:
            self._require_publishable(staged)
            slot = self._table.slot(staged.id)
            if not slot or not staged.in_place or not self._tree.names(slot):
                raise StagedFailed(f"object {staged.id} is gone: its new content is not kept")
            with self._ledger.change() as transaction:
                old_extents, old_blocks = self._table.extents(slot), self._table.blocks(slot)
                new_blocks = blocks_of(staged.sealed_extents)
                self._ledger.observe_removed(slot)
                self._retention.free_extents(staged.id, Share.USED, old_extents)
                transaction.put(self._row(staged))
                if self._retention.pinned(staged.id):
                    self._ledger.space.pinned_used += new_blocks - old_blocks
                self._count_published(staged)
                self._ledger.observe_added(slot)
            return staged.id

    def _require_publishable(self, staged: Staged) -> None:
        self._ledger.require_writable()
        if staged.ended or not staged.sealed:
            reason = "has ended" if staged.ended else "isn't sealed"
            raise StagedFailed(f"staged object {staged.id} {reason}: it can't be published")
        if not staged.modified and staged.base is not None:
            raise StagedFailed(
                f"staged object {staged.id} is an unmodified view of object {staged.base}: there is nothing to publish"
            )

    def _row(self, staged: Staged) -> Row:
        if staged.in_place:
            a = self._ledger.attributes(self._ledger.slot(staged.id))
            extra = self._table.extra.get(self._ledger.slot(staged.id), b"")
            mtime = staged.attributes().mtime_ns
        else:
            a, extra = staged.attributes(), staged.extra.encode()
            mtime = a.mtime_ns
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
                self._ledger.next_sequence,
                time.time_ns(),
            ),
            *(staged.sealed_extents, staged.sealed_checksums, extra),
        )

    def _count_published(self, staged: Staged) -> None:
        blocks = blocks_of(staged.sealed_extents)
        self._ledger.space.move(Share.STAGED, Share.USED, blocks)
        staged.charge(-blocks)
        self._staging.end(staged)
        staged.end_published()
        self._ledger.counters.commits += 1
