"""Retention: what keeps an object's bytes where they are, its pins and the record that frees them, and what is left of
objects that were dropped while somebody reads them."""

from __future__ import annotations

import threading

from hcfs.store.attributes import Attributes, Flags, Kind, kind_of
from hcfs.store.extents import Extent
from hcfs.store.ledger import Ledger
from hcfs.store.locking import lock_held
from hcfs.store.pins import Pin
from hcfs.store.space import Share
from hcfs.store.superblock import BLOCK
from hcfs.store.transactions import Transaction

Freed = tuple[int, list[tuple[int, int]]]
"""An object's id, and (block, count) runs that it has given up"""


class Retention:
    """Pins, and extents on their way from an object to the free space. Memory only; thread-safe."""

    def __init__(self, ledger: Ledger) -> None:
        self.lock = ledger.lock
        self._ledger = ledger
        self._table = ledger.index.table
        self._space = ledger.space
        self.freed: list[Freed] = []
        """Whose freeing record isn't durable yet"""
        self.gone: dict[int, Attributes] = {}
        """Attributes of objects that were dropped while pinned"""
        self._pins: dict[int, list[Pin]] = {}
        self._parked: dict[int, list[tuple[int, int]]] = {}
        self._restored = threading.Condition(self.lock)
        """Notified when withheld blocks are free again"""

    # --- pins ------------------------------------------------------------------------------------------------------

    def pin(self, oid: int) -> Pin:
        """Pin an object. Memory only. Raises NoSuchObject."""
        with self.lock:
            slot = self._ledger.slot(oid)
            pin = Pin(self._table, slot, self._unpin)
            pins = self._pins.setdefault(oid, [])
            if not pins and not self._table.flags[slot] & Flags.QUARANTINED:
                self._space.pinned_used += self._table.blocks(slot)
            pins.append(pin)
            return pin

    def _unpin(self, pin: Pin) -> None:
        with self.lock:
            if not pin.mark_released():
                return
            pins = self._pins[pin.oid]
            pins.remove(pin)
            if pins:
                return
            del self._pins[pin.oid]
            slot = self._table.slot(pin.oid)
            if slot and not self._table.flags[slot] & Flags.QUARANTINED:
                self._space.pinned_used -= self._table.blocks(slot)
            self.gone.pop(pin.oid, None)
            self._space.release(Share.PENDING, self._parked.pop(pin.oid, ()))

    def pinned(self, oid: int) -> bool:
        """Whether somebody has the object open."""
        return oid in self._pins

    def pins(self) -> list[Pin]:
        """Every pin there is."""
        with self.lock:
            return [pin for pins in self._pins.values() for pin in pins]

    # --- extents that were given up --------------------------------------------------------------------------------

    @lock_held
    def drop(self, transaction: Transaction, slot: int) -> None:
        """Remove an object's row and give its extents up; the observer was told. Lock held."""
        ledger, table = self._ledger, self._table
        oid, flags, kind = table.id[slot], table.flags[slot], kind_of(table.mode[slot])
        quarantined = bool(flags & Flags.QUARANTINED)
        if oid in self._pins:
            self.gone[oid] = ledger.attributes(slot, nlink=0)
            if not quarantined:
                self._space.pinned_used -= table.blocks(slot)
        self.free_extents(oid, Share.QUARANTINED if quarantined else Share.USED, table.extents(slot))
        if quarantined:
            ledger.quarantined_slots.pop(slot, None)
        elif kind is Kind.FILE:
            ledger.files -= 1
        transaction.drop(oid)
        ledger.touched.pop(oid, None)
        table.give_slot(slot)

    @lock_held
    def free_extents(self, oid: int, share: Share, extents: tuple[Extent, ...]) -> None:
        """Give up extents that a durable record may still name: reusable when the transaction under way is durable and
        no pin is left. The caller moves `pinned_used` itself. Lock held."""
        runs = [(e.block, e.count) for e in extents]
        if runs:
            self._space.move(share, Share.PENDING, sum(count for _, count in runs))
            self.freed.append((oid, runs))

    @lock_held
    def take_freed(self) -> list[Freed]:
        """What was given up so far, for a record that makes it durable; `settle` it then. Lock held."""
        freed, self.freed = self.freed, []
        return freed

    @lock_held
    def settle(self, freed: list[Freed]) -> None:
        """The records that freed these are durable: make them free, or park them until the last pin goes. Lock
        held."""
        for oid, runs in freed:
            if oid in self._pins:
                self._parked.setdefault(oid, []).extend(runs)
            else:
                self._space.release(Share.PENDING, runs)

    @lock_held
    def parked_oids(self) -> set[int]:
        """Objects that are gone, or have other content, but for the handles that still read what was. Lock held."""
        return set(self._parked)

    @lock_held
    def parked_bytes(self, oids: set[int] | None = None) -> int:
        """Of those objects, None for all, what the handles keep. Lock held."""
        parked = self._parked if oids is None else {oid: self._parked[oid] for oid in oids & self._parked.keys()}
        return sum(count for runs in parked.values() for _, count in runs) * BLOCK

    @property
    def settling_blocks(self) -> int:
        """Blocks given up that only a commit, one under way perhaps, keeps from being free. Lock held."""
        return self._space.shares[Share.PENDING] - self._space.withheld - self.parked_bytes() // BLOCK

    # --- blocks that are withheld ----------------------------------------------------------------------------------

    def restore(self, runs: list[tuple[int, int]]) -> None:
        """Give back what was withheld from writers."""
        with self._restored:
            self._space.restore(runs)
            self._restored.notify_all()

    def wait_for_withheld(self, seconds: float) -> bool:
        """Wait until blocks that are just being discarded or wiped are free again; False when there are none, or that
        took longer. Blocks."""
        with self._restored:
            return bool(self._space.withheld) and self._restored.wait(seconds)
