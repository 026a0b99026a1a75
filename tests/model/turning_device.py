"""A device in memory before whose calls somebody else may run."""

from __future__ import annotations

from model.turns import Turns

from hcfs.device import MemoryDevice


class TurningDevice(MemoryDevice):
    turns: Turns

    def _check(self, operation: str, offset: int, length: int) -> None:
        super()._check(operation, offset, length)
        if operation != "read" or length:
            self.turns.point("device", f"{operation} {offset} {length}")
