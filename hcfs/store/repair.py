"""Repairing a store that isn't mounted: what `hcfs fsck --repair` does.

Only what needs no guess is repaired. A copy of the superblock, or of a region's header, is
written again from the valid one. What the metadata
lost stays lost: names and objects that no longer make sense are dropped, as the next mount would, and a fresh
checkpoint makes the rest whole. An object with a granule that doesn't verify is quarantined, since nothing can bring
its bytes back; one that its origin doesn't have yet stays, and the damage is told as an error that is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hcfs.device import BlockDevice, BufferPool
from hcfs.store.attributes import UNSYNCED_XATTR, Kind
from hcfs.store.errors import ChecksumMismatch, UnreadableGranule
from hcfs.store.recovery import UnrecoveredStore
from hcfs.store.store import Store
from hcfs.store.superblock import BLOCK, read_pair, read_valid

POOL_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was done."""

    kind: str
    """Superblock, metadata or object"""
    where: str
    """The place on the device, or the object's path"""
    detail: str
    """A sentence"""


def repair(
    device: BlockDevice, *, data: bool = False, progress: Callable[[int, int], None] | None = None
) -> list[Repair]:
    """Mend a store that isn't mounted; what was done. Blocks. With `data`, also read every granule of every file.

    A second pass finds nothing to do. The device stays open. Raises, before anything is written, NotAStore,
    UnsupportedFormat, DeviceSizeMismatch, and CorruptMetadata where neither metadata region is usable; DeviceError at
    any moment, after which the store is no worse than before."""
    pool = BufferPool(max(POOL_BYTES, 4 * read_pair(device).superblock.granule))
    unrecovered = UnrecoveredStore.open(device, pool)
    store = unrecovered.recover(mend_unreadable=True)
    done = [Repair("metadata", f"region {store.ledger.region}", sentence) for sentence in unrecovered.mended]
    done += _superblocks(device)
    if data:
        done += _objects(store, progress)
    store.commit()
    return done


def _superblocks(device: BlockDevice) -> list[Repair]:
    """Write the valid copy over one that doesn't verify, differs or is older."""
    pair = read_pair(device)
    valid = read_valid(device, pair)
    done = []
    for place in pair.damaged:
        block = 0 if place == "first" else pair.superblock.device_blocks - 1
        device.write(block * BLOCK, valid)
        device.flush()
        done.append(Repair("superblock", f"{place} block", "the superblock was written anew from the other copy"))
    return done


def _objects(store: Store, progress: Callable[[int, int], None] | None) -> list[Repair]:
    files = [oid for oid in store.census.objects() if store.attributes(oid).kind is Kind.FILE and store.is_current(oid)]
    total, checked, done = sum(store.attributes(oid).size for oid in files), 0, []
    for oid in files:
        pin = store.pin(oid)
        try:
            store.content.verify(pin)
        except (ChecksumMismatch, UnreadableGranule) as error:
            if store.get_xattr(oid, UNSYNCED_XATTR) is not None:
                continue  # what verifies of it is to stay readable
            where = "/" + store.names.shown_path_of(oid).decode(errors="backslashreplace")
            store.quarantine(oid, str(error))
            done.append(Repair("object", where, f"{error}: the object is quarantined"))
        finally:
            pin.release()
        checked += pin.size
        if progress is not None:
            progress(checked, total)
    return done
