"""Ways to read a file, each of which asks for its bytes in another order."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from lab.harness.actors import load, load_direct, pread_direct

STEP = 256 << 10


def from_the_end(path: Path) -> bytes:
    """Its tail first, and so on to its beginning."""
    return _in_order(path, os.O_RDONLY, lambda places: iter(places[::-1]))


def header_first(path: Path) -> bytes:
    """The first bytes, then all others in any order, as loaders do."""

    def order(places: list[int]) -> Iterator[int]:
        yield places[0]
        yield from random.sample(places[1:], len(places) - 1)

    return _in_order(path, os.O_RDONLY, order)


def scattered_direct(path: Path) -> bytes:
    """In any order, past the kernel's pages."""
    return _in_order(path, os.O_RDONLY | os.O_DIRECT, lambda places: iter(random.sample(places, len(places))))


def _in_order(path: Path, flags: int, order: Callable[[list[int]], Iterator[int]]) -> bytes:
    fd = os.open(path, flags)
    try:
        size = os.fstat(fd).st_size
        read = pread_direct if flags & os.O_DIRECT else os.pread
        parts = {at: read(fd, STEP, at) for at in order(list(range(0, size, STEP)))}
        return b"".join(parts[at] for at in sorted(parts))
    finally:
        os.close(fd)


WAYS = (load, load_direct, from_the_end, header_first, scattered_direct)
