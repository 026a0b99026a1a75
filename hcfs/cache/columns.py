"""Columns indexed by an object's slot: one machine word an object, nothing for the garbage collector to walk."""

from __future__ import annotations

from array import array

NIL = 0xFFFFFFFF
"""No slot, in columns that hold slots."""

_STEP = 1024
"""Rows added at least, so that growing one slot at a time doesn't copy each time."""


def grow(column: array[int], slot: int, fill: int) -> None:
    """Make `slot` an index of `column`, new rows holding `fill`."""
    missing = slot + 1 - len(column)
    if missing > 0:
        # An eighth more: a million objects added one by one are copied a few times, and no more than that is unused.
        column.extend(array(column.typecode, [fill]) * max(missing, _STEP, len(column) // 8))
