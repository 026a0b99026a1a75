"""From a device to a store: what is on the medium, and the state it amounts to. Crash cases: docs/format.md, "What a
crash leaves"."""

from __future__ import annotations

import logging
import secrets
import stat
from dataclasses import dataclass, field
from typing import Literal

from hcfs.device import BlockDevice, BufferPool, DeviceError
from hcfs.store.allocator import Allocator, Overlap
from hcfs.store.attributes import ROOT_ID, Flags, Kind, kind_of
from hcfs.store.errors import CorruptMetadata, ReadOnlyStore
from hcfs.store.extents import Extent
from hcfs.store.frame import FrameType
from hcfs.store.items import Index, apply
from hcfs.store.log import LogWriter
from hcfs.store.page import PageNames, load
from hcfs.store.region import LogDamage, LogScan, RegionReader
from hcfs.store.region_header import HeaderPair, RegionHeader, mend_headers, read_headers
from hcfs.store.space import Space
from hcfs.store.store import Store
from hcfs.store.superblock import BLOCK, KNOWN_RO_COMPAT, Superblock, SuperblockPair, read_pair
from hcfs.store.tree import ROOT_SLOT

log = logging.getLogger(__name__)

GENERATION_SKIP = 1 << 32


@dataclass(slots=True)
class Replayed:
    """The state that one region holds."""

    region: int
    header: RegionHeader
    index: Index
    next_sequence: int
    log_end: int
    """bytes from the region's start"""
    transactions: int
    torn: bool
    damage: list[LogDamage]
    last_generation: int
    """the highest of both regions' valid headers"""
    unreadable: bool = False
    """something was left out since the device couldn't read it, which may pass"""
    carried: list[bytes] = field(default_factory=list)
    """the last transactions, which this region's log doesn't hold, but the other one's"""
    problems: list[str] = field(default_factory=list)
    """sentences; empty when the state is exact"""
    headers: list[HeaderPair] = field(default_factory=list)
    """of the regions that have a valid one"""


@dataclass(frozen=True, slots=True)
class Refused:
    """A region that can't be used."""

    reason: str
    """a sentence"""
    unreadable: bool = False
    """the device couldn't read it, which may pass"""
    header: RegionHeader | None = None
    """valid where the log behind the checkpoint may still be used"""


def replay(device: BlockDevice, superblock: Superblock, number: int, header: RegionHeader) -> Replayed | Refused:
    """Load a region's checkpoint and apply its log."""
    reader = RegionReader(device, superblock, number)
    index = Index(superblock.granule, superblock.max_slot)
    names: list[PageNames] = []
    try:
        for payload_at, found in reader.pages(header):
            if found is None:
                reason = f"the checkpoint of metadata region {number} (generation {header.generation}) is damaged"
                return Refused(reason, header=header)
            names.append(load(found.payload, payload_at, index))
        for page_names in names:
            for parent, name, slot in page_names.entries:
                parent_slot = index.table.slot(parent)
                if parent_slot and slot != ROOT_SLOT:
                    index.add_name(parent_slot, name, slot)
        index.next_serial = max(index.next_serial, header.next_serial)
        scan = LogScan(reader, header)
        transactions = 0
        for frame in scan:
            if frame.type == FrameType.TRANSACTION:
                apply(frame.payload, index)
                transactions += 1
    except (CorruptMetadata, DeviceError) as error:
        return Refused(
            f"metadata region {number} (generation {header.generation}) can't be read: {error}",
            unreadable=isinstance(error, DeviceError),
            header=header if isinstance(error, DeviceError) else None,
        )
    replayed = Replayed(
        *(number, header, index, scan.next_sequence, scan.end, transactions, scan.torn, scan.damage),
        last_generation=header.generation,
    )
    for damage in scan.damage:
        replayed.problems.append(
            f"{damage.bytes} bytes of the metadata log at {damage.offset} are damaged: transactions"
            f" {damage.first} to {damage.end - 1} are lost"
        )
    if scan.unreadable:
        # Behind the block that the next batch would be in, there is none.
        replayed.unreadable = min(scan.unreadable) * BLOCK <= scan.end
        replayed.problems.append(
            f"{len(scan.unreadable)} blocks of the log of metadata region {number} can't be read: transactions from"
            f" {scan.next_sequence} on may be lost"
        )
    index.table.rebuild_free_slots()
    return replayed


def _carry_on(device: BlockDevice, superblock: Superblock, state: Replayed, header: RegionHeader) -> None:
    """Apply the log behind a checkpoint that can't be used to the state before that: transactions say what is."""
    scan = LogScan(RegionReader(device, superblock, 1 - state.region), header)
    behind, carried = state.next_sequence, []
    try:
        for frame in scan:
            if frame.sequence >= behind:
                apply(frame.payload, state.index)
                carried.append(bytes(frame.payload))
    except (CorruptMetadata, DeviceError) as error:
        state.problems.append(f"the log behind it can't be used: {error}")
    if header.checkpoint_seq >= behind or scan.damage:
        lost = scan.next_sequence - behind - len(carried)
        state.problems.append(f"{lost} transactions, {behind} or later, are lost")
    else:
        state.carried = carried
    state.next_sequence = max(behind, scan.next_sequence)
    state.index.table.rebuild_free_slots()


def current(device: BlockDevice, superblock: Superblock) -> Replayed:
    """The state of the newest usable region. Raises CorruptMetadata when neither is."""
    pairs = [read_headers(device, superblock, number) for number in (0, 1)]
    refused = [Refused(pair.problems[0], pair.unreadable) for pair in pairs if pair.header is None]
    usable = [(pair.header, pair.number) for pair in pairs if pair.header is not None]
    usable.sort(key=lambda each: each[0].generation, reverse=True)
    for header, number in usable:
        result = replay(device, superblock, number, header)
        if isinstance(result, Replayed):
            result.headers = [pair for pair in pairs if pair.header is not None]
            result.last_generation = usable[0][0].generation
            result.unreadable |= any(other.unreadable for other in refused) or any(pair.unreadable for pair in pairs)
            for other in refused:
                used = f"{other.reason}; region {number} (generation {header.generation}) is used"
                if other.header is None:
                    result.problems.append(f"{used}, which may be older")
                else:
                    result.problems.append(f"{used}, and the log behind that checkpoint")
                    _carry_on(device, superblock, result, other.header)
            return result
        refused.append(result)
    raise CorruptMetadata(
        f"{device.name}: the metadata can't be recovered ({'; '.join(other.reason for other in refused)});"
        " 'hcfs mkfs --force' makes an empty store of it"
    )


def tidy(superblock: Superblock, state: Replayed) -> list[int]:
    """Check what a sound state always fulfils and mend it where it can be: ids of objects to drop. Adds to
    `state.problems`."""
    index = state.index
    table = index.table
    if table.slot(ROOT_ID) != ROOT_SLOT or kind_of(table.mode[ROOT_SLOT]) is not Kind.DIRECTORY:
        raise CorruptMetadata(
            "the root directory is missing from the metadata: 'hcfs mkfs --force' makes an empty store of the device"
        )
    if table.extents(ROOT_SLOT) or table.flags[ROOT_SLOT]:
        state.problems.append("the root directory has extents or flags")
        table.strip(ROOT_SLOT)
        table.flags[ROOT_SLOT] = 0
    for slot in table.slots():
        if table.flags[slot] & Flags.QUARANTINED and index.tree.names(slot):
            state.problems.append(f"the quarantined object {table.id[slot]} has a name")
            index.tree.forget(slot)
    for slot, entries in list(index.tree.children.items()):
        if entries and not stat.S_ISDIR(table.mode[slot]):
            state.problems.append(f"object {table.id[slot]} has entries and is no directory")
            for name in list(entries):
                index.tree.remove(slot, name)
    doomed = _unreachable(index)
    state.problems.extend(f"object {oid} has no name that leads to it from the root" for oid in doomed)
    for oid in doomed:
        # Directories that lie in each other would be walked up for ever.
        index.tree.forget(table.slot(oid))
    runs: list[tuple[int, int, int]] = []
    start, end = superblock.data_start, superblock.data_start + superblock.data_blocks
    lost = set(doomed)
    for slot in table.slots():
        oid, extents = table.id[slot], table.extents(slot)
        if oid in lost:
            continue
        if any(extent.block < start or extent.block + extent.count > end for extent in extents):
            state.problems.append(f"object {oid} has an extent outside the data area")
            lost.add(oid)
            doomed.append(oid)
            continue
        if not _in_order(extents, -(-table.size[slot] // BLOCK)):
            state.problems.append(f"object {oid} has extents that overlap or lie beyond its size")
            lost.add(oid)
            doomed.append(oid)
            continue
        runs.extend((extent.block, extent.count, oid) for extent in extents)
    runs.sort()
    last_end, last_oid = 0, 0
    for block, count, oid in runs:
        if oid in lost:
            continue
        if block < last_end:
            # The younger object was allocated when the older one's record of being freed was lost.
            older, younger = sorted((last_oid, oid), key=lambda o: table.generation[table.slot(o)])
            state.problems.append(f"object {older} and object {younger} claim the same blocks")
            lost.add(older)
            doomed.append(older)
            if older == oid:
                continue
        last_end, last_oid = block + count, oid
    return doomed


def _in_order(extents: tuple[Extent, ...], blocks: int) -> bool:
    """Whether extents of an object of that many blocks ascend, and none is empty."""
    at = 0
    for extent in extents:
        if extent.logical < at or not extent.count:
            return False
        at = extent.logical + extent.count
    return at <= blocks


def _unreachable(index: Index) -> list[int]:
    """Ids of the objects that no path from the root leads to, quarantined ones apart. Where records are missing,
    directories can also lie in each other."""
    table, tree = index.table, index.tree
    reached = {ROOT_SLOT}
    directories = [ROOT_SLOT]
    for directory in directories:
        for slot in tree.children.get(directory, {}).values():
            if slot in tree.children and slot not in reached:
                reached.add(slot)
                directories.append(slot)
    return [
        table.id[slot]
        for slot in table.slots()
        if slot != ROOT_SLOT
        and not table.flags[slot] & Flags.QUARANTINED
        and not any(parent in reached for parent, _ in tree.names(slot))
    ]


def build_space(superblock: Superblock, index: Index) -> Space:
    """The allocator and the shares that a state amounts to. Raises CorruptMetadata."""
    table = index.table
    runs: list[tuple[int, int]] = []
    used = quarantined = 0
    for slot in table.slots():
        runs.extend((extent.block, extent.count) for extent in table.extents(slot))
        if table.flags[slot] & Flags.QUARANTINED:
            quarantined += table.blocks(slot)
        else:
            used += table.blocks(slot)
    runs.sort()
    try:
        allocator = Allocator.without(superblock.data_start, superblock.data_blocks, runs)
    except Overlap as overlap:
        raise CorruptMetadata(f"blocks {overlap.args[0]} + {overlap.args[1]} are claimed twice") from overlap
    return Space(allocator, used, quarantined)


class UnrecoveredStore:
    """A device with a valid superblock whose metadata isn't read yet: it can't be used for anything but `recover`."""

    def __init__(self, device: BlockDevice, pool: BufferPool, pair: SuperblockPair) -> None:
        self._device = device
        self._pool = pool
        self._pair = pair
        self.mended: list[str] = []
        """what `recover` found wrong with the metadata, and what it did, in sentences"""

    @classmethod
    def open(cls, device: BlockDevice, pool: BufferPool) -> UnrecoveredStore:
        """Read the superblocks. Blocks. Raises NotAStore, UnsupportedFormat, DeviceSizeMismatch."""
        return cls(device, pool, read_pair(device))

    @property
    def superblock(self) -> Superblock:
        return self._pair.superblock

    def recover(self, read_only: bool = False, *, mend_unreadable: bool = False) -> Store:
        """Replay the metadata; the store that it amounts to. Blocks. Raises CorruptMetadata, DeviceError,
        ReadOnlyStore.

        Flushes the device unless `read_only`; writes only if metadata was damaged, then a fresh checkpoint, or if a
        region's two headers differ, then the other one of them. Where metadata can't be read, which may pass, nothing
        is written and the store is read-only, unless `mend_unreadable`: going on without it would lose for good what is
        perhaps there."""
        superblock, device = self.superblock, self._device
        unknown = superblock.ro_compat & ~KNOWN_RO_COMPAT
        if unknown and not read_only:
            raise ReadOnlyStore(
                f"{device.name} uses features that this hcfs may only read (ro-compat bits {unknown:#x}):"
                " mount it with -o ro, or use a newer hcfs"
            )
        state = current(device, superblock)
        doomed = tidy(superblock, state)
        headers = [problem for pair in state.headers for problem in pair.problems]
        superblocks = [f"the superblock at the {place} block is damaged" for place in self._pair.damaged]
        problems = superblocks + headers + state.problems
        degraded: Literal["ok", "degraded"] = "degraded" if problems else "ok"
        for oid in doomed:
            state.index.table.strip(state.index.table.slot(oid))
        space = build_space(superblock, state.index)
        writer = None
        if state.unreadable and not mend_unreadable:
            read_only = True
            problems.append("nothing is written until it can be read, or 'hcfs fsck --repair' goes on without it")
        if not read_only and not device.read_only:
            start, length = superblock.regions[state.region] * BLOCK, superblock.header_copy * BLOCK
            begin = state.header.log_block * BLOCK
            writer = LogWriter(device, superblock.uuid, start, length, state.header.generation, begin, state.log_end)
        store = Store(
            device,
            self._pool,
            superblock,
            state.index,
            space,
            writer=writer,
            region=state.region,
            # A crash may have left frames of a checkpoint that never became current, and a damaged region those of one
            # that did. Their generation is not to be used again.
            region_generation=state.last_generation + secrets.randbelow(GENERATION_SKIP),
            next_sequence=state.next_sequence,
            state="read-only" if writer is None else degraded,
            state_reason="; ".join(problems) or ("mounted read-only" if writer is None else ""),
        )
        for problem in problems:
            log.warning("%s: %s", device.name, problem)
        if writer is not None:
            # What was read may still be in a volatile cache, written by a process that died before its flush. Blocks
            # that it frees are given out from now on, so it must be durable first.
            device.flush()
            for pair in state.headers:
                mend_headers(device, superblock, pair)
            self.mended = [f"{problem}; it was written anew" for problem in headers]
        if writer is not None and (doomed or state.problems):
            # The checkpoint is about to overwrite the only place where these are.
            store.queue = state.carried
            store.commit()
            store.drop_lost(doomed)
            store.checkpoint()
            self.mended += [f"{problem}: what is left was written anew" for problem in state.problems]
        return store
