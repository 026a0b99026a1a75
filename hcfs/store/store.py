"""The extent store: objects by id and name, staged and committed, on one block device. Usable without a mount.

Everything is synchronous and thread-safe. What is said to be "memory only" never waits for I/O; the rest blocks the
calling thread. Rooms above see this class, `UnrecoveredStore` which makes it, and `format_device`."""

from __future__ import annotations

from collections.abc import Iterator

from hcfs.store.attributes import Flags
from hcfs.store.quarantine import Quarantine
from hcfs.store.space import Share, Usage
from hcfs.store.superblock import BLOCK


class Store(Quarantine):
    """A recovered store. Made by `UnrecoveredStore.recover`; ended by `close`."""

    def usage(self) -> Usage:
        """Where every byte of the data area is, at one moment. Memory only."""
        with self.lock:
            return Usage(
                capacity=self.superblock.data_blocks * BLOCK,
                used=self.space.bytes_of(Share.USED),
                free=self.space.free * BLOCK,
                staged=self.space.bytes_of(Share.STAGED),
                pending=self.space.bytes_of(Share.PENDING),
                quarantined=self.space.bytes_of(Share.QUARANTINED),
                pinned_used=self.space.pinned_used * BLOCK,
                objects=self.index.table.objects,
                files=self.files,
                staged_objects=self.staged_objects,
                quarantined_objects=self.quarantined_objects,
                max_objects=self.superblock.max_objects,
            )

    def objects(self) -> Iterator[int]:
        """Ids of all objects, quarantined ones included; objects that come or go meanwhile may be missed."""
        for slot in self.index.table.slots():
            oid = self.index.table.id[slot]
            if oid:
                yield oid

    def recency(self) -> list[tuple[int, int]]:
        """(last access ns, id) of every committed file, the least recent first."""
        with self.lock:
            table, tree = self.index.table, self.index.tree
            named = [
                slot for slot in table.slots() if not table.flags[slot] & Flags.QUARANTINED and self._observed(slot)
            ]
            return sorted((table.last_access_ns[slot], table.id[slot]) for slot in named if tree.names(slot))

    def drop_lost(self, oids: list[int]) -> None:
        """Drop objects that recovery found unusable."""
        for oid in oids:
            with self.change() as transaction:
                slot = self.index.table.slot(oid)
                if slot:
                    for parent, name in self.names_of(oid):
                        transaction.unname(parent, name)
                    self.drop(transaction, slot)
