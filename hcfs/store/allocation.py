"""Allocation: blocks for objects that are being written, within what their owners may take."""

from __future__ import annotations

from collections.abc import Callable

from hcfs.store.accounts import Account
from hcfs.store.errors import NoSpace, QuotaExceeded
from hcfs.store.ledger import Ledger
from hcfs.store.locking import lock_held
from hcfs.store.retention import Retention
from hcfs.store.space import Share
from hcfs.store.staged import Staged
from hcfs.store.superblock import BLOCK

SEGMENT_BLOCKS = 1024
"""Most blocks allocated ahead of a writer, 4 MiB: objects written side by side still get long runs"""
LARGE_WRITE_BLOCKS = 256
"""A first write this long, the kernel's largest request, belongs to a large object"""
AHEAD_SHARE = 16
"""Blocks are allocated ahead of a writer while its account may take so many times as many: what is ahead of several
writers mustn't use up the quota that others of them need"""

WITHHELD_S = 5.0
"""Most that a writer waits for a discard"""


class Allocation:
    """Gives blocks to staged objects. Thread-safe."""

    def __init__(self, ledger: Ledger, retention: Retention, commit: Callable[[], None]) -> None:
        """commit: makes durable what is visible, so that what was given up is free."""
        self.lock = ledger.lock
        self._ledger = ledger
        self._retention = retention
        self._space = ledger.space
        self._commit = commit

    def assign(self, staged: Staged, account: Account) -> None:
        """Count a staged object's blocks for `account` from now on, as its name says whose it will be. Memory only.
        Raises QuotaExceeded, with nothing changed, when they don't fit."""
        with self.lock:
            former, blocks = staged.account, staged.charged
            if account == former:
                return
            former.charge(-blocks)
            if blocks and account.allowance() < blocks:
                former.charge(blocks)
                raise QuotaExceeded(account.refusal(blocks))
            account.charge(blocks)
            staged.account = account

    def allocate(self, staged: Staged, count: int, near: int | None) -> list[tuple[int, int]]:
        """Blocks for a staged object: (block, count) runs of at least `count` together, more than that only as a single
        run; adjacent to block `near` where possible. Blocks while room is made. Raises NoSpace, QuotaExceeded."""
        ahead = SEGMENT_BLOCKS if count >= LARGE_WRITE_BLOCKS else min(staged.blocks_held, SEGMENT_BLOCKS)
        wanted = max(count, ahead)
        waited = False
        while True:
            with self.lock:
                self._ledger.require_writable()
                account = staged.account
                fits = account.allowance() >= count
                runs = self._take(staged, count, wanted, near) if fits else None
                if runs is not None:
                    return runs
                pending = self._retention.settling_blocks > 0
            if not fits:
                if not account.make_room(count):
                    raise QuotaExceeded(account.refusal(count))
                continue
            if pending:
                self._commit()
                with self.lock:
                    fits = staged.account.allowance() >= count
                    runs = self._take(staged, count, count, near) if fits else None
                if runs is not None:
                    return runs
                if not fits:
                    continue  # others of the owner took it meanwhile: no reason to evict elsewhere
            make_room = self._ledger.make_room
            if make_room is None or not make_room(count):
                if not waited and self._retention.wait_for_withheld(WITHHELD_S):
                    waited = True
                    continue
                raise NoSpace(
                    f"{self._ledger.device.name} is full: {count * BLOCK} bytes are wanted, {self._space.free * BLOCK}"
                    " are free and nothing can be evicted"
                )

    def _take(self, staged: Staged, count: int, wanted: int, near: int | None) -> list[tuple[int, int]] | None:
        """Allocate, and charge the object's account, which has room for `count`. Lock held."""
        if wanted > count and staged.account.allowance() < AHEAD_SHARE * wanted:
            wanted = count
        runs = self._allocate(count, wanted, near)
        if runs is not None:
            staged.charge(sum(blocks for _, blocks in runs))
        return runs

    def _allocate(self, count: int, wanted: int, near: int | None) -> list[tuple[int, int]] | None:
        space = self._space
        if wanted > count and space.free < 4 * wanted:
            wanted = count
        if near is not None and space.free >= count:
            taken = space.extend(near, wanted)
            if taken >= count:
                return [(near, taken)]
            if taken:
                rest = space.stage(count - taken)
                assert rest is not None
                return [(near, taken), *rest]
        if space.allocator.largest_run >= wanted:
            return space.stage(wanted)
        return space.stage(count)

    @lock_held
    def give_back(self, staged: Staged, runs: list[tuple[int, int]]) -> None:
        """Free staged blocks that no record ever named. Lock held."""
        self._space.release(Share.STAGED, runs)
        staged.charge(-sum(count for _, count in runs))
