"""OPENDIR and READDIR, and what else is asked of directories and of the whole filesystem."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

from hcfs.errors import HcfsError
from hcfs.mount.answers import Blocking, Caller, Entry, Opened, Space
from hcfs.mount.core import Identity
from hcfs.mount.handles import DirectoryHandle, NameListing
from hcfs.mount.removal import Removal
from hcfs.mount.versions import Fate
from hcfs.mount.virtual import VIRTUAL
from hcfs.store import BLOCK, Kind
from hcfs.store.errors import NoSuchObject

LISTED_TIMEOUT = 5.0
"""Seconds for which the kernel may answer for what it learned from a listing. Listing everything mustn't protect
everything from eviction, as lookups do, and `ls -l` looks up all that it listed; so what was only listed is looked up
again before long, and not at once."""


LISTED_TOGETHER = 128
"""Entries looked up under one hold of the locks, some 0.8 ms: about what the kernel takes of them in one answer."""


def _is_special(name: bytes, ino: int) -> bool:
    """Whether an entry is known by its inode: the directory itself, its parent, and the virtual tree."""
    return name in (b".", b"..") or ino >= VIRTUAL


class Listing(Removal):
    """All from memory, but in a namespace with an origin."""

    def opendir(self, ino: int, caller: Caller) -> Opened:
        """Open a directory for listing: its committed names, and the caller's own versions that aren't under staging
        names."""
        who = Identity(caller)
        with self.lock:
            pin, parent = self.store.pin(ino), self.store.parent_of(ino)
            own = [
                (version.name, version.ino)
                for version in self.versions.in_directory(ino)
                if version.opened and not version.staging and version.owner is not None and version.owner == who.process
            ]
        return Opened(self.handles.add(DirectoryHandle(ino, parent, own, pin, partial(self.names_in, ino))))

    def names_in(self, directory: int) -> NameListing:
        """Begin a listing of a directory's committed names."""
        return self.store.listing(directory)

    def begin_listing(self, number: int) -> Blocking[None] | None:  # noqa: ARG002  # namespaces with an origin look
        """What has to be waited for before a directory is listed from its beginning."""
        return None

    def readdir(self, number: int, start: int) -> Iterator[tuple[bytes, Entry, int]]:
        """Name, entry and position after it, from position `start` on; what was removed since is left out.

        The kernel takes each entry for the answer to a lookup, so each says what its name leads to now."""
        handle = self.handles.directory(number)
        entries = handle.entries(start)
        try:
            while batch := list(islice(entries, LISTED_TOGETHER)):
                for (name, ino, position), entry in zip(batch, self._listed(handle.ino, batch), strict=True):
                    if _is_special(name, ino):
                        yield name, self.getattr(ino), position
                    elif entry is not None:
                        yield name, entry, position
        except NoSuchObject:
            return  # a directory that was removed is empty

    def _listed(self, directory: int, batch: list[tuple[bytes, int, int]]) -> list[Entry | None]:
        """What each of (name, inode, position) leads to, None for what was removed and for what is special.

        The locks are taken once for all of them. Taken for each, they are had again before whoever waits for them has
        woken up, and a read was seen to wait for 0.4 s."""
        with self.lock, self.store.lock:
            return [None if _is_special(name, ino) else self._led_to(directory, name, ino) for name, ino, _ in batch]

    def _led_to(self, directory: int, name: bytes, ino: int) -> Entry | None:
        version = self.versions.get(ino)
        if version is not None and version.fate is Fate.STAGED and version.key == (directory, name):
            return self.version_entry(version)
        try:
            oid = self.store.lookup(directory, name)
            if oid is None:
                return None
            attributes = self.object_attributes(oid)
        except HcfsError:
            return None
        entry = self.object_entry(attributes, bool(self.versions.of_name(directory, name)))
        if attributes.kind is Kind.DIRECTORY or entry.entry_timeout <= LISTED_TIMEOUT:
            return entry
        return entry._replace(entry_timeout=LISTED_TIMEOUT)

    def statfs(self) -> Space:
        """Blocks and files, free and in all. What could be evicted counts as available, not as free."""
        usage = self.store.usage()
        evictable = self.cache.statistics().evictable_bytes
        return Space(
            blocks=usage.capacity // BLOCK,
            free=usage.free // BLOCK,
            available=(usage.free + evictable) // BLOCK,
            files=usage.max_objects,
            files_free=max(1, usage.max_objects - usage.objects + usage.files),
        )
