"""Whose an inode number is. Those of the store are object ids (docs/format.md, "Ids"); two ranges aren't."""

from __future__ import annotations

VIRTUAL = 1 << 63
"""From here on they are the virtual tree's: an object's id has no bit 63."""

REMOTE = 1 << 31
"""From here up to `_REMOTE_END` they are files that aren't on the device: the low half of an object's id is its slot,
and no store has as many."""

_REMOTE_END = 1 << 32


def is_virtual(ino: int) -> bool:
    """Whether the number is the virtual tree's."""
    return ino >= VIRTUAL


def is_remote(ino: int) -> bool:
    """Whether the number was given to a file that wasn't on the device."""
    return REMOTE <= ino < _REMOTE_END
