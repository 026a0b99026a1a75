"""What a version in a namespace with a write policy notes of the content at the origin that it will replace."""

from __future__ import annotations

from hcfs.cache import DOUBT, ETAG, SYNC, SyncRecord
from hcfs.store import Staged

UNKNOWN = "?"
"""As an ETag: what a version is to replace is known when it gets its name."""


def mark(staged: Staged, record: SyncRecord) -> None:
    """Make it dirty when it is published. The record has the width that the version reserves metadata for."""
    unmark(staged, ETAG, DOUBT)
    staged.set_xattr(SYNC, record.encode())


def unmark(staged: Staged, *names: bytes) -> None:
    """Remove some of hcfs's own extended attributes, as far as they are there: a view has those of its base."""
    for name in names:
        if staged.get_xattr(name) is not None:
            staged.remove_xattr(name)


def base_marked(staged: Staged) -> str:
    """What it is to replace; UNKNOWN when that isn't marked."""
    value = staged.get_xattr(SYNC)
    return UNKNOWN if value is None else SyncRecord.decode(value).base


def rebase(staged: Staged, base: str) -> None:
    """This device has changed what the origin has under the version's name: that is no conflict."""
    if base_marked(staged) != UNKNOWN:
        mark(staged, SyncRecord(base))
