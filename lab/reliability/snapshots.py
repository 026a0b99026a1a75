"""All that a store holds, as a value that two stores can be compared by, and the invariants that every store keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from hcfs.store import BLOCK, ROOT_ID, Kind

if TYPE_CHECKING:
    from hcfs.store import Store

Entry = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One state of a store. Recency isn't part of it: it is kept lazily, and promises nothing."""

    entries: frozenset[Entry]
    quarantined: frozenset[Entry]

    def difference(self, other: Snapshot) -> str:
        """What the other has that this lacks, and the reverse, for people."""
        more = sorted(map(repr, (other.entries | other.quarantined) - (self.entries | self.quarantined)))
        less = sorted(map(repr, (self.entries | self.quarantined) - (other.entries | other.quarantined)))
        return "\n".join([f"  found    {line}" for line in more] + [f"  expected {line}" for line in less])


def take(store: Store) -> Snapshot:
    """Read everything. Raises what reading raises: every byte is verified on the way."""
    entries: list[Entry] = []
    pending = [(b"", ROOT_ID)]
    for path, oid in pending:
        a = store.attributes(oid)
        xattrs = tuple(sorted((name, store.get_xattr(oid, name)) for name in store.list_xattrs(oid)))
        content: object = None
        if a.kind is Kind.DIRECTORY:
            pending.extend((path + b"/" + name, child) for name, child in store.list_directory(oid))
        elif a.kind is Kind.SYMLINK:
            content = store.readlink(oid)
        else:
            content = crc32c(read_all(store, oid))
        times = (a.atime_ns, a.mtime_ns, a.ctime_ns)
        entries.append(
            (path, oid, a.mode, a.uid, a.gid, a.nlink, a.size, a.blocks, *times, a.generation, a.state, xattrs, content)
        )
    set_aside = frozenset((q.id, q.path, q.reason, q.blocks, q.since_ns) for q in store.removals.quarantined())
    return Snapshot(frozenset(entries), set_aside)


def read_all(store: Store, oid: int) -> bytes:
    """An object's bytes, verified."""
    pin = store.pin(oid)
    try:
        return b"".join(bytes(store.read(pin, at, 1 << 20)) for at in range(0, pin.size, 1 << 20))
    finally:
        pin.release()


def check_space(store: Store) -> None:
    """AssertionError unless every block of the data area belongs to exactly one extent or is free, and the usage says
    so. For a store with nothing staged, pinned or pending."""
    runs: list[tuple[int, int]] = list(store.ledger.space.allocator.free_runs())
    free = sum(count for _, count in runs)
    for oid in store.census.objects():
        runs.extend((extent.block, extent.count) for extent in store.content.extents_of(oid))
    runs.sort()
    at = store.superblock.data_start
    for block, count in runs:
        assert block == at, f"blocks {min(at, block)} to {max(at, block) - 1} are claimed twice or lost"
        at = block + count
    assert at == store.superblock.data_start + store.superblock.data_blocks, "blocks at the end are lost"
    usage = store.usage()
    assert usage.free == free * BLOCK, "the free space isn't what the allocator has"
    assert usage.staged == usage.pending == 0, "a store at rest has staged or pending blocks"
    assert usage.used + usage.free + usage.quarantined == usage.capacity, "the shares don't add up"
