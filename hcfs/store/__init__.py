"""The extent store: format, allocator, metadata log, checksums, staged and committed objects. Knows no mount and no
policy."""

from __future__ import annotations

from hcfs.store.attributes import NAME_MAX, ROOT_ID, Attributes, Kind
from hcfs.store.extents import Extent
from hcfs.store.ledger import Observer
from hcfs.store.mkfs import format_device, plan
from hcfs.store.names import Listing
from hcfs.store.pins import Pin, SealedPin
from hcfs.store.recovery import UnrecoveredStore
from hcfs.store.removals import Quarantined
from hcfs.store.space import Usage
from hcfs.store.staged import Staged
from hcfs.store.store import Store
from hcfs.store.superblock import BLOCK, Superblock, read_superblock

__all__ = [
    "BLOCK",
    "NAME_MAX",
    "ROOT_ID",
    "Attributes",
    "Extent",
    "Kind",
    "Listing",
    "Observer",
    "Pin",
    "Quarantined",
    "SealedPin",
    "Staged",
    "Store",
    "Superblock",
    "UnrecoveredStore",
    "Usage",
    "format_device",
    "plan",
    "read_superblock",
]
