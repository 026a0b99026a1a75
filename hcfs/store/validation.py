"""What a sound state of the metadata always fulfils, checked before it is used, and the space that it amounts to.

A mount waits for this. The columns are walked as a whole, since a million objects that are asked one by one take 5 s;
only what stands out is looked at alone."""

from __future__ import annotations

import stat
from collections.abc import Iterator

from hcfs.store.allocator import Allocator, Overlap
from hcfs.store.attributes import MAX_SLOT, ROOT_ID, Flags, Kind, kind_of
from hcfs.store.errors import CorruptMetadata
from hcfs.store.extents import Extent
from hcfs.store.replay import Replayed
from hcfs.store.space import Space
from hcfs.store.superblock import BLOCK, Superblock
from hcfs.store.table import Table
from hcfs.store.transactions import MetadataIndex
from hcfs.store.tree import ROOT_SLOT

_SLOT_BITS = MAX_SLOT.bit_length()


def validate(superblock: Superblock, state: Replayed) -> list[int]:
    """Check what a sound state always fulfils and mend it where it can be: ids of objects to drop. Adds to
    `state.problems`."""
    index = state.index
    table, tree = index.table, index.tree
    if table.slot(ROOT_ID) != ROOT_SLOT or kind_of(table.mode[ROOT_SLOT]) is not Kind.DIRECTORY:
        raise CorruptMetadata(
            "the root directory is missing from the metadata: 'hcfs mkfs --force' makes an empty store of the device"
        )
    if table.extents(ROOT_SLOT) or table.flags[ROOT_SLOT]:
        state.problems.append("the root directory has extents or flags")
        table.strip(ROOT_SLOT)
        table.flags[ROOT_SLOT] = 0
    for slot in table.quarantined_slots():
        if tree.names(slot):
            state.problems.append(f"the quarantined object {table.id[slot]} has a name")
            tree.forget(slot)
    for slot, entries in list(tree.children.items()):
        if entries and not stat.S_ISDIR(table.mode[slot]):
            state.problems.append(f"object {table.id[slot]} has entries and is no directory")
            for name in list(entries):
                tree.remove(slot, name)
    doomed = _unreachable(index)
    state.problems.extend(f"object {oid} has no name that leads to it from the root" for oid in doomed)
    for oid in doomed:
        # Directories that lie in each other would be walked up for ever.
        tree.forget(table.slot(oid))
    return _check_extents(superblock, state, doomed)


def _check_extents(superblock: Superblock, state: Replayed, doomed: list[int]) -> list[int]:
    """`doomed`, and the objects whose extents can't be right."""
    table = state.index.table
    lost = {table.slot(oid) for oid in doomed}

    def drop(slot: int, problem: str) -> None:
        state.problems.append(problem)
        if stat.S_ISDIR(table.mode[slot]):
            table.strip(slot)  # whatever is in it would lose its name with it
            return
        lost.add(slot)
        doomed.append(table.id[slot])

    start, end = superblock.data_start, superblock.data_start + superblock.data_blocks
    for slot in _misplaced(table, start, end):
        oid, extents = table.id[slot], table.extents(slot)
        if slot in lost:
            continue
        if any(extent.block < start or extent.block + extent.count > end for extent in extents):
            drop(slot, f"object {oid} has an extent outside the data area")
        elif not _in_order(extents, -(-table.size[slot] // BLOCK)):
            drop(slot, f"object {oid} has extents that overlap or lie beyond its size")
    last_end, last_slot = 0, 0
    for block, count, slot in _runs(table):
        if slot in lost:
            continue
        if block < last_end:
            # The younger object was allocated when the older one's record of being freed was lost.
            older, younger = sorted((last_slot, slot), key=table.generation.__getitem__)
            drop(older, f"object {table.id[older]} and object {table.id[younger]} claim the same blocks")
            if older == slot:
                continue
        last_end, last_slot = block + count, slot
    return doomed


def _misplaced(table: Table, start: int, end: int) -> Iterator[int]:
    """Slots whose extents are to be looked at alone: all that have several, and of the others those whose one lies
    outside [start, end), or is longer than the object."""
    rows = zip(table.first_count, table.first_block, table.size, strict=True)
    yield from [
        slot
        for slot, (count, block, size) in enumerate(rows)
        if count and (block < start or block + count > end or (count - 1) * BLOCK >= size)
    ]
    yield from list(table.scattered)


def _runs(table: Table) -> Iterator[tuple[int, int, int]]:
    """(block, count, slot) of every extent, by block, those of one block by slot."""
    # A number each, not a tuple: a third of the memory, and sorted in a third of the time.
    single = [
        block << _SLOT_BITS | slot
        for slot, (block, count) in enumerate(zip(table.first_block, table.first_count, strict=True))
        if count
    ]
    counts, mask = table.first_count, (1 << _SLOT_BITS) - 1
    if not table.scattered:
        single.sort()
        return ((key >> _SLOT_BITS, counts[key & mask], key & mask) for key in single)
    runs = [(extent.block, extent.count, slot) for slot, own in table.scattered.items() for extent in own]
    runs += ((key >> _SLOT_BITS, counts[key & mask], key & mask) for key in single)
    runs.sort(key=lambda run: (run[0], run[2]))
    return iter(runs)


def _in_order(extents: tuple[Extent, ...], blocks: int) -> bool:
    """Whether extents of an object of that many blocks ascend, and none is empty."""
    at = 0
    for extent in extents:
        if extent.logical < at or not extent.count:
            return False
        at = extent.logical + extent.count
    return at <= blocks


def _unreachable(index: MetadataIndex) -> list[int]:
    """Ids of the objects that no path from the root leads to, quarantined ones apart. Where records are missing,
    directories can also lie in each other."""
    table, tree = index.table, index.tree
    reached = {ROOT_SLOT}
    lost: set[int] = set()
    for directory in tree.children:
        way: dict[int, None] = {}
        at = directory
        while at and at not in reached and at not in lost and at not in way:
            way[at] = None
            at = tree.parents(len(table))[at]
        if at in reached:
            reached.update(way)
        else:
            lost.update(way)
    rows = zip(table.id, tree.parents(len(table)), strict=False)
    suspects = [slot for slot, (oid, parent) in enumerate(rows) if oid and parent not in reached]
    return [
        table.id[slot]
        for slot in suspects
        if slot != ROOT_SLOT
        and not table.flags[slot] & Flags.QUARANTINED
        and not any(parent in reached for parent, _ in tree.names(slot))
    ]


def build_space(superblock: Superblock, index: MetadataIndex) -> Space:
    """The allocator and the shares that a state amounts to. Raises CorruptMetadata."""
    table = index.table
    quarantined = sum(map(table.blocks, table.quarantined_slots()))
    used = sum(table.first_count) + sum(extent.count for own in table.scattered.values() for extent in own)
    try:
        allocator = Allocator.without(
            superblock.data_start, superblock.data_blocks, ((b, n) for b, n, _ in _runs(table))
        )
    except Overlap as overlap:
        raise CorruptMetadata(f"blocks {overlap.args[0]} + {overlap.args[1]} are claimed twice") from overlap
    return Space(allocator, used - quarantined, quarantined)
