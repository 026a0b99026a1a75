"""The entries of one directory: name -> slot of the object that it leads to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

MANY = 1 << 14
"""Entries above which a directory's are kept in parts."""

PARTS = 256
"""A million names make parts of 4,000."""


class ManyEntries:
    """Entries of a directory that has very many, spread over parts by their names' hashes.

    As one dictionary, a million names hold up everybody for 24 ms when it grows and 20 ms when it is listed, and ten
    million for ten times as long; a part of it takes a few hundredths of that. There are always `PARTS` of them, so a
    name's part never changes. Used like the dictionary that smaller directories have."""

    __slots__ = ("_count", "parts")

    def __init__(self, entries: dict[bytes, int]) -> None:
        self.parts: list[dict[bytes, int]] = [{} for _ in range(PARTS)]
        self._count = len(entries)
        for name, slot in entries.items():
            self.parts[hash(name) % PARTS][name] = slot

    def get(self, name: bytes, default: int = 0) -> int:
        return self.parts[hash(name) % PARTS].get(name, default)

    def __setitem__(self, name: bytes, slot: int) -> None:
        part = self.parts[hash(name) % PARTS]
        before = len(part)
        part[name] = slot
        self._count += len(part) - before

    def update(self, entries: Iterable[tuple[bytes, int]]) -> None:
        """Add entries whose names aren't there yet."""
        for name, slot in entries:
            self.parts[hash(name) % PARTS][name] = slot
            self._count += 1

    def pop(self, name: bytes, default: int) -> int:
        part = self.parts[hash(name) % PARTS]
        before = len(part)
        slot = part.pop(name, default)
        self._count += len(part) - before
        return slot

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(self.parts)

    def values(self) -> Iterator[int]:
        return chain.from_iterable(part.values() for part in self.parts)

    def items(self) -> Iterator[tuple[bytes, int]]:
        return chain.from_iterable(part.items() for part in self.parts)


Entries = dict[bytes, int] | ManyEntries
"""Of one directory; in the order they were made while they are few."""


def parts_of(entries: Entries) -> list[dict[bytes, int]]:
    """The entries, as dictionaries that are each small enough to be walked while others wait."""
    return entries.parts if isinstance(entries, ManyEntries) else [entries]
