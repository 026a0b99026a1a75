"""From a device to a store."""

from __future__ import annotations

import logging
import secrets
from typing import Literal

from hcfs.device import BlockDevice, BufferPool
from hcfs.store.errors import ReadOnlyStore
from hcfs.store.ledger import Ledger
from hcfs.store.log import LogWriter
from hcfs.store.region_header import mend_headers
from hcfs.store.replay import EXHAUSTED, current
from hcfs.store.store import Store
from hcfs.store.superblock import BLOCK, KNOWN_RO_COMPAT, Superblock, SuperblockPair, read_pair
from hcfs.store.validation import build_space, validate

log = logging.getLogger(__name__)

GENERATION_SKIP = 1 << 32


class UnrecoveredStore:
    """A device with a valid superblock whose metadata isn't read yet: it can't be used for anything but `recover`."""

    def __init__(self, device: BlockDevice, pool: BufferPool, pair: SuperblockPair) -> None:
        self._device = device
        self._pool = pool
        self._pair = pair
        self.mended: list[str] = []
        """What `recover` found wrong with the metadata, and what it did, in sentences"""

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
        doomed = validate(superblock, state)
        headers = [problem for pair in state.headers for problem in pair.problems]
        superblocks = [f"the superblock at the {place} block is damaged" for place in self._pair.damaged]
        problems = superblocks + headers + state.problems
        degraded: Literal["ok", "degraded"] = "degraded" if problems else "ok"
        for oid in doomed:
            state.index.table.strip(state.index.table.slot(oid))
        space = build_space(superblock, state.index)
        writer = None
        if state.exhausted:
            read_only = True
            problems.append(EXHAUSTED)
        if state.unreadable and not mend_unreadable:
            read_only = True
            problems.append("nothing is written until it can be read, or 'hcfs fsck --repair' goes on without it")
        if not read_only and not device.read_only:
            start, length = superblock.regions[state.region] * BLOCK, superblock.header_copy * BLOCK
            begin = state.header.log_block * BLOCK
            writer = LogWriter(device, superblock.uuid, start, length, state.header.generation, begin, state.log_end)
        ledger = Ledger(
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
        store = Store(ledger)
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
            ledger.queue = state.carried
            store.commit()
            store.removals.drop_lost(doomed)
            store.checkpoint()
            self.mended += [f"{problem}: what is left was written anew" for problem in state.problems]
        return store
