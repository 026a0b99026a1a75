"""What `hcfs fsck` does: reads all metadata, and every granule if asked, and says what isn't as docs/format.md demands.

Writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hcfs.device import BlockDevice, BufferPool, DeviceError
from hcfs.store.attributes import ROOT_ID, Flags, Kind, kind_of
from hcfs.store.errors import ChecksumMismatch, CorruptMetadata, StoreError, UnreadableGranule
from hcfs.store.recovery import UnrecoveredStore
from hcfs.store.replay import EXHAUSTED, Replayed, current
from hcfs.store.space import Share
from hcfs.store.store import Store
from hcfs.store.superblock import BLOCK, Superblock, read_pair
from hcfs.store.tree import ROOT_SLOT
from hcfs.store.validation import build_space, validate

Progress = Callable[[int, int], None]
"""(bytes checked, bytes to check)"""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    kind: str
    """Superblock, region, log, name, extent, allocation, checksum or device"""
    where: str
    """The object's path, or the place on the device"""
    detail: str
    """A sentence"""


@dataclass(slots=True)
class Report:
    """What a check found; bytes unless named otherwise."""

    superblock: Superblock
    problems: list[Problem] = field(default_factory=list)
    files: int = 0
    directories: int = 0
    symlinks: int = 0
    quarantined: int = 0
    used_bytes: int = 0
    quarantined_bytes: int = 0
    free_bytes: int = 0
    capacity_bytes: int = 0
    region: int = 0
    transactions: int = 0
    """In the log, behind the checkpoint"""
    torn_tail: bool = False
    """The log ends in an unfinished batch, as after a crash; not a problem"""
    data_checked: bool = False
    granules_checked: int = 0
    granules_bad: int = 0

    @property
    def clean(self) -> bool:
        return not self.problems

    def add(self, kind: str, where: str, detail: str) -> None:
        self.problems.append(Problem(kind, where, detail))


def check(device: BlockDevice, *, data: bool = False, progress: Progress | None = None) -> Report:
    """Check a store that isn't mounted. Blocks.

    Raises NotAStore, UnsupportedFormat, DeviceSizeMismatch when there is nothing to check."""
    pair = read_pair(device)
    superblock = pair.superblock
    report = Report(superblock, capacity_bytes=superblock.data_blocks * BLOCK)
    for place in pair.damaged:
        report.add(
            "superblock",
            f"{place} block",
            f"the copy of the superblock at the {place} block doesn't verify or is older",
        )
    try:
        state = current(device, superblock)
        for problem in state.problems:
            report.add("log", f"region {state.region}", problem)
        for region in state.headers:
            for problem in region.problems:
                report.add("region", f"region {region.number}", problem)
        if state.exhausted:
            report.add("region", f"region {state.region}", EXHAUSTED)
        state.problems.clear()
        doomed = validate(superblock, state)
    except CorruptMetadata as error:
        report.add("region", "metadata", str(error))
        return report
    for problem in state.problems:
        report.add(
            "allocation" if "claim" in problem else "extent" if "extent" in problem else "name", "metadata", problem
        )
    report.region, report.transactions, report.torn_tail = state.region, state.transactions, state.torn
    _check_tree(superblock, state, report)
    for oid in doomed:
        state.index.table.strip(state.index.table.slot(oid))
    _check_space(superblock, state, report)
    if data:
        _check_data(device, report, progress)
    return report


def _check_tree(superblock: Superblock, state: Replayed, report: Report) -> None:
    table, tree = state.index.table, state.index.tree
    if table.objects > superblock.max_objects:
        report.add("name", "metadata", f"{table.objects} objects are more than the limit of {superblock.max_objects}")
    reachable = tree.reachable()
    for slot in table.slots():
        oid, kind = table.id[slot], kind_of(table.mode[slot])
        quarantined = bool(table.flags[slot] & Flags.QUARANTINED)
        if quarantined:
            report.quarantined += 1
        elif kind is Kind.DIRECTORY:
            report.directories += 1
        elif kind is Kind.SYMLINK:
            report.symlinks += 1
        else:
            report.files += 1
        if not quarantined and tree.names(slot) and slot not in reachable:
            report.add("name", _where(state, slot), f"object {oid} can't be reached from the root")


def _where(state: Replayed, slot: int) -> str:
    path = state.index.tree.shown_path(slot)
    return (
        "/" + path.decode(errors="backslashreplace")
        if path or slot == ROOT_SLOT
        else f"object {state.index.table.id[slot]}"
    )


def _check_space(superblock: Superblock, state: Replayed, report: Report) -> None:
    try:
        space = build_space(superblock, state.index)
    except CorruptMetadata as error:
        report.add("allocation", "data area", str(error))
        return
    report.used_bytes = space.bytes_of(Share.USED)
    report.quarantined_bytes = space.bytes_of(Share.QUARANTINED)
    report.free_bytes = space.free * BLOCK


def _shown(store: Store, oid: int) -> str:
    return "/" + store.names.shown_path_of(oid).decode(errors="backslashreplace")


def _check_data(device: BlockDevice, report: Report, progress: Progress | None) -> None:
    """Read every granule of every file, quarantined ones apart: those are known to be bad."""
    pool = BufferPool(max(16 << 20, 4 * report.superblock.granule))
    try:
        store = UnrecoveredStore.open(device, pool).recover(read_only=True)
    except (StoreError, DeviceError) as error:
        report.add("region", "metadata", str(error))
        return
    files = [oid for oid in store.census.objects() if store.attributes(oid).kind is Kind.FILE and store.is_current(oid)]
    total = sum(store.attributes(oid).size for oid in files)
    report.data_checked, done = True, 0
    granule = report.superblock.granule
    for oid in files:
        pin = store.pin(oid)
        try:
            for start in range(0, pin.size, granule):
                report.granules_checked += 1
                length = min(granule, pin.size - start)
                try:
                    store.read(pin, start, length)
                except ChecksumMismatch:
                    report.granules_bad += 1
                    report.add(
                        "checksum",
                        _shown(store, oid),
                        f"bytes {start} to {start + length - 1} don't match their checksum",
                    )
                except UnreadableGranule as error:
                    report.granules_bad += 1
                    report.add("device", _shown(store, oid), str(error))
                done += length
                if progress is not None:
                    progress(done, total)
        finally:
            pin.release()


assert ROOT_ID == ROOT_SLOT
