"""Space: where every block of the data area is accounted for, at every moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from hcfs.store.allocator import Allocator
from hcfs.store.superblock import BLOCK


class Share(Enum):
    """What a block that isn't free belongs to."""

    USED = "used"
    """Reached by a committed name"""
    STAGED = "staged"
    """Allocated by an object that isn't published"""
    PENDING = "pending"
    """Given up, but pinned by a handle, waiting for its record to be durable, or being discarded"""
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes, but for the counts of objects. used + free + staged + pending + quarantined = capacity."""

    capacity: int
    used: int
    free: int
    staged: int
    pending: int
    quarantined: int
    pinned_used: int
    """The part of used that open handles read"""
    objects: int
    """Committed files, directories and symlinks, the root included"""
    files: int
    """Committed files, quarantined ones not included"""
    staged_objects: int
    quarantined_objects: int
    max_objects: int
    free_runs: int
    """Into how many runs the free space is cut"""
    largest_free: int
    """The longest of them"""
    fragmented_objects: int
    """Objects in more than one extent"""


class Space:
    """The allocator and the shares; not thread-safe: the store's lock guards it."""

    def __init__(self, allocator: Allocator, used: int, quarantined: int) -> None:
        self.allocator = allocator
        self.shares = {Share.USED: used, Share.STAGED: 0, Share.PENDING: 0, Share.QUARANTINED: quarantined}
        self.pinned_used = 0
        self.withheld = 0
        """Of the pending blocks, those that are free and are being discarded or wiped"""
        self.on_free: list[Callable[[int, int], None]] = []
        """Told of each (block, count) run that becomes free"""
        assert used + quarantined + allocator.free_blocks == allocator.blocks

    @property
    def free(self) -> int:
        """Free blocks."""
        return self.allocator.free_blocks

    def move(self, source: Share, target: Share, blocks: int) -> None:
        """Account blocks from one share to another."""
        self.shares[source] -= blocks
        self.shares[target] += blocks
        assert self.shares[source] >= 0, f"{source} below zero"

    def stage(self, count: int) -> list[tuple[int, int]] | None:
        """Allocate blocks for a staged object: (block, count) runs, or None."""
        runs = self.allocator.take(count)
        if runs is not None:
            self.shares[Share.STAGED] += count
        return runs

    def extend(self, block: int, count: int) -> int:
        """Allocate up to `count` staged blocks that start exactly at `block`; how many it became."""
        taken = self.allocator.take_at(block, count)
        self.shares[Share.STAGED] += taken
        return taken

    def release(self, source: Share, runs: Iterable[tuple[int, int]]) -> None:
        """Make (block, count) runs of a share free."""
        for block, count in runs:
            self.allocator.give(block, count)
            self.shares[source] -= count
            for tell in self.on_free:
                tell(block, count)
        assert self.shares[source] >= 0, f"{source} below zero"

    def withhold(self, block: int, count: int) -> list[tuple[int, int]]:
        """Take what is free of the `count` blocks from `block` on, so that nobody is given it meanwhile: (block, count)
        runs."""
        runs = self.allocator.take_within(block, count)
        blocks = sum(length for _, length in runs)
        self.withheld += blocks
        self.shares[Share.PENDING] += blocks
        return runs

    def restore(self, runs: Iterable[tuple[int, int]]) -> None:
        """Make withheld runs free again; nobody is told."""
        for block, count in runs:
            self.allocator.give(block, count)
            self.withheld -= count
            self.shares[Share.PENDING] -= count

    def bytes_of(self, share: Share) -> int:
        return self.shares[share] * BLOCK
