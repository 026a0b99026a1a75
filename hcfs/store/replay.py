"""What the metadata regions hold: the newest checkpoint that can be used, and the log behind it. Crash cases:
docs/format.md, "What a crash leaves"."""

from __future__ import annotations

from dataclasses import dataclass, field

from hcfs.device import BlockDevice, DeviceError
from hcfs.store.errors import CorruptMetadata, TooLittleMemory
from hcfs.store.frame import LAST_COUNT, FrameType
from hcfs.store.page_reader import NameLoader, load
from hcfs.store.region import LogDamage, LogScan, RegionReader
from hcfs.store.region_header import HeaderPair, RegionHeader, read_headers
from hcfs.store.superblock import BLOCK, Superblock
from hcfs.store.transactions import MetadataIndex, apply

EXHAUSTED = "its counts of changes are at their end, so nothing is written; copy what is wanted from it"


@dataclass(slots=True)
class Replayed:
    """The state that one region holds."""

    region: int
    header: RegionHeader
    index: MetadataIndex
    next_sequence: int
    log_end: int
    """Bytes from the region's start"""
    transactions: int
    torn: bool
    damage: list[LogDamage]
    last_generation: int
    """The highest of both regions' valid headers"""
    unreadable: bool = False
    """Something was left out since the device couldn't read it, which may pass"""
    carried: list[bytes] = field(default_factory=list)
    """The last transactions, which this region's log doesn't hold, but the other one's"""
    problems: list[str] = field(default_factory=list)
    """Sentences; empty when the state is exact"""
    headers: list[HeaderPair] = field(default_factory=list)
    """Of the regions that have a valid one"""

    @property
    def exhausted(self) -> bool:
        """Whether what is written from here on couldn't be read."""
        return max(self.last_generation, self.next_sequence, self.index.next_serial) > LAST_COUNT


@dataclass(frozen=True, slots=True)
class Refused:
    """A region that can't be used."""

    reason: str
    """A sentence"""
    unreadable: bool = False
    """The device couldn't read it, which may pass"""
    header: RegionHeader | None = None
    """Valid where the log behind the checkpoint may still be used"""


def replay(device: BlockDevice, superblock: Superblock, number: int, header: RegionHeader) -> Replayed | Refused:
    """Load a region's checkpoint and apply its log."""
    reader = RegionReader(device, superblock, number)
    index = MetadataIndex(superblock.granule, superblock.max_slot)
    names = NameLoader(index)
    try:
        for payload_at, found in reader.pages(header):
            if found is None:
                reason = f"the checkpoint of metadata region {number} (generation {header.generation}) is damaged"
                return Refused(reason, header=header)
            names.add(load(found.payload, payload_at, index))
        names.finish()
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
        try:
            result = replay(device, superblock, number, header)
        except MemoryError:  # a limit of the process's own
            raise TooLittleMemory(
                f"{device.name}: there is too little memory for its metadata; give this process more"
            ) from None
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
