"""The census: all objects, and all space, at once."""

from __future__ import annotations

import stat
from collections.abc import Iterator

from hcfs.store.attributes import Flags
from hcfs.store.ledger import Ledger
from hcfs.store.space import Share, Usage
from hcfs.store.staging import Staging
from hcfs.store.superblock import BLOCK
from hcfs.store.tree import ROOT_SLOT


class Census:
    """Counts, and walks over everything that the store has. Memory only; thread-safe."""

    def __init__(self, ledger: Ledger, staging: Staging) -> None:
        self._ledger = ledger
        self._staging = staging

    def usage(self) -> Usage:
        """Where every byte of the data area is, at one moment. Memory only."""
        ledger = self._ledger
        space, table, capacity = ledger.space, ledger.index.table, ledger.superblock.data_blocks * BLOCK
        with ledger.lock:
            return Usage(
                capacity=capacity,
                used=space.bytes_of(Share.USED),
                free=space.free * BLOCK,
                staged=space.bytes_of(Share.STAGED),
                pending=space.bytes_of(Share.PENDING),
                quarantined=space.bytes_of(Share.QUARANTINED),
                pinned_used=space.pinned_used * BLOCK,
                objects=table.objects,
                files=ledger.files,
                staged_objects=len(self._staging.staged),
                quarantined_objects=len(ledger.quarantined_slots),
                max_objects=ledger.superblock.max_objects,
                free_runs=space.allocator.runs,
                largest_free=space.allocator.largest_run * BLOCK,
                fragmented_objects=len(table.scattered),
            )

    @property
    def slots(self) -> int:
        """The slot behind the last one that was ever used: where a walk through `objects` ends."""
        return len(self._ledger.index.table)

    def objects(self, first_slot: int = 1) -> Iterator[int]:
        """Ids of all objects from a slot on, quarantined ones included; objects that come or go meanwhile may be
        missed."""
        for slot in self._ledger.index.table.slots(first_slot):
            oid = self._ledger.index.table.id[slot]
            if oid:
                yield oid

    def files_by_access(self) -> Iterator[tuple[int, int, int, bytes, int]]:
        """(id, namespace, blocks, first name, nanoseconds from its last change to its last access) of every committed
        file, the least recently accessed first. For the start of a mount: nobody may change the store meanwhile.

        Reads the columns: a million objects take 1 s, against 9 s by the calls that answer for one object."""
        table, tree = self._ledger.index.table, self._ledger.index.tree
        ids, counts, parents, names = table.id, table.first_count, tree.parent, tree.name
        quarantined = int(Flags.QUARANTINED)
        rows = zip(parents, table.mode, table.flags, strict=False)
        slots = [
            slot
            for slot, (parent, mode, flags) in enumerate(rows)
            if parent and stat.S_ISREG(mode) and not flags & quarantined
        ]
        slots.sort(key=table.last_access_ns.__getitem__)
        namespaces: dict[int, int] = {}
        for slot in slots:
            # Each directory on the way is walked once: a deep tree would take the square of its depth.
            way, parent = [slot], parents[slot]
            while parent not in namespaces and parent != ROOT_SLOT:
                way.append(parent)
                parent = parents[parent]
            namespace = ids[way[-1]] if parent == ROOT_SLOT else namespaces[parent]
            namespaces.update(dict.fromkeys(way[1:], namespace))
            since_change = table.last_access_ns[slot] - table.ctime_ns[slot]
            yield ids[slot], namespace, counts[slot] or table.blocks(slot), names[slot] or b"", since_change
