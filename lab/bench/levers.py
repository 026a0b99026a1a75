"""Levers: hcfs with one thing about its mount changed, as a candidate of its own beside hcfs as it is."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from lab.bench.error import BenchError

_PR_SET_THP_DISABLE = 41


class Lever:
    """What is changed: something around the mount command, or of the mount that it made."""

    def __init__(self, word: str) -> None:
        """word: `small-pages`, or `read-ahead=KIB`. BenchError for any other."""
        self.word = word
        name, _, value = word.partition("=")
        self.mounting: Callable[[], AbstractContextManager[None]] = _unchanged
        self._kib = 0
        if word == "small-pages":
            self.mounting = _without_huge_pages
        elif name == "read-ahead" and value.isdecimal():
            self._kib = int(value)
        else:
            raise BenchError(f"no lever is called {word!r}: there are small-pages and read-ahead=KIB")

    def mounted(self, directory: Path) -> None:
        """The filesystem is there."""
        if self._kib:
            device = os.stat(directory).st_dev
            path = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
            path.write_text(str(self._kib))


@contextmanager
def _unchanged() -> Iterator[None]:
    yield


@contextmanager
def _without_huge_pages() -> Iterator[None]:
    """What is started within gets no transparent huge pages, nor do its children."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0):
        raise BenchError(f"huge pages can't be switched off: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        libc.prctl(_PR_SET_THP_DISABLE, 0, 0, 0, 0)
