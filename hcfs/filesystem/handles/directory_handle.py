"""A directory that is open for listing."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from hcfs.filesystem.calls import Blocking, CallError, Entry
from hcfs.filesystem.inodes import is_virtual
from hcfs.store import Pin
from hcfs.store.errors import NoSuchObject

LISTED_TOGETHER = 128
"""Entries looked up under one hold of the locks, some 0.8 ms: about what the kernel takes of them in one answer."""

Listed = tuple[bytes, int, int]
"""Name, inode (0: whatever the name leads to), position after it."""


class NameListing(Protocol):
    """Names in a directory, piece by piece."""

    def more(self) -> list[bytes]:
        """The next names; none at the end. Memory only."""


class Lister(Protocol):
    """What a listing asks about the directory's entries."""

    def begin_listing(self, directory: int) -> Blocking[None] | None:
        """What has to be waited for before a directory is listed from its beginning."""

    def names_in(self, directory: int) -> NameListing:
        """Begin a listing of a directory's names."""

    def led_to(self, directory: int, batch: list[tuple[bytes, int]]) -> list[Entry | None]:
        """What each of (name, inode) leads to; None for what was removed."""

    def getattr(self, ino: int) -> Entry:
        """Of the directory itself and its parent."""

    def path(self, directory: int) -> bytes:
        """Where it is, for the log."""


class DirectoryHandle:
    """A Handle: a directory's entries. Those that are known by inode when it is opened come first, then the names of
    committed objects, taken piece by piece as the listing comes to them: a directory of a million names isn't copied at
    once, and one that is opened for another purpose not at all. A name that is there all the while is met exactly once.
    What each is, is looked up when it is read. A pin lets the directory be asked for after its removal."""

    __slots__ = ("_fixed", "_known", "_lister", "_listing", "_names", "_pin", "ino")

    def __init__(
        self, ino: int, parent: int, fixed: list[tuple[bytes, int]], lister: Lister, pin: Pin | None = None
    ) -> None:
        """fixed: (name, inode)."""
        self.ino = ino
        self._fixed = [(b".", ino), (b"..", parent), *fixed]
        self._lister = lister
        self._pin = pin
        self._listing: NameListing | None = None
        self._names: list[bytes] = []
        """As far as they were taken: positions behind the fixed ones count in here"""
        self._known: set[bytes] = set()

    def begin(self) -> Blocking[None] | None:
        """What has to be waited for before it is listed from its beginning."""
        return self._lister.begin_listing(self.ino)

    def list(self, start: int) -> Iterator[tuple[bytes, Entry, int]]:
        """Name, entry and position after it, from position `start` on; what was removed since is left out.

        The kernel takes each entry for the answer to a lookup, so each says what its name leads to now. The locks are
        taken once for a batch. Taken for each, they are had again before whoever waits for them has woken up, and a
        read was seen to wait for 0.4 s."""
        entries = self._entries(start)
        try:
            while batch := list(islice(entries, LISTED_TOGETHER)):
                plain = [(name, ino) for name, ino, _ in batch if not _is_special(name, ino)]
                found = iter(self._lister.led_to(self.ino, plain) if plain else ())
                for name, ino, position in batch:
                    entry = self._lister.getattr(ino) if _is_special(name, ino) else next(found)
                    if entry is not None:
                        yield name, entry, position
        except NoSuchObject:
            return  # a directory that was removed is empty

    def _entries(self, start: int) -> Iterator[Listed]:
        """From a position on. From 0 on it is a new listing, as rewinddir asks for it."""
        if start == 0 or self._listing is None:
            self._listing, self._names = self._lister.names_in(self.ino), []
            self._known = {name for name, _ in self._fixed}
        for position in range(start, len(self._fixed)):
            yield *self._fixed[position], position + 1
        at = max(start - len(self._fixed), 0)
        while True:
            while at < len(self._names):
                name = self._names[at]
                at += 1
                if name not in self._known:
                    yield name, 0, len(self._fixed) + at
            more = self._listing.more()
            if not more:
                return
            self._names += more

    def read(self, offset: int, length: int) -> bytes:
        """EISDIR."""
        raise CallError(errno.EISDIR)

    def write(self, offset: int, data: bytes | memoryview, *, drops_privileges: bool) -> int:
        """EBADF: it can't be opened for that."""
        raise CallError(errno.EBADF)

    def flush(self) -> None:
        """Nothing was written."""

    def sync(self) -> None:
        """The same."""

    def release(self) -> None:
        if self._pin is not None:
            self._pin.release()

    def path(self) -> bytes:
        return self._lister.path(self.ino)


def _is_special(name: bytes, ino: int) -> bool:
    """Whether an entry is known by its inode: the directory itself, its parent, and the virtual tree."""
    return name in (b".", b"..") or is_virtual(ino)
