"""The order of use at the start of a mount, from the last accesses that the store kept."""

from __future__ import annotations

from hcfs.cache.index import Index
from hcfs.store import Store


def rebuild(store: Store, index: Index) -> None:
    """Put every committed file of the store into the index, the one accessed last being the most recently used.

    Nobody else uses the store yet.
    """
    index.load(store.census.files_by_access())
