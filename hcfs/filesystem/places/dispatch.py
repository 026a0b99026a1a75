"""Which place a call goes to, by its inode or directory. One row for each kind."""

from __future__ import annotations

import errno
from collections.abc import Callable

from hcfs.filesystem.calls import CallError
from hcfs.filesystem.inodes import is_virtual
from hcfs.filesystem.places.local_namespace import LocalNamespace
from hcfs.filesystem.places.place import Place
from hcfs.filesystem.places.root import Root
from hcfs.filesystem.places.virtual_place import VirtualPlace
from hcfs.store import ROOT_ID


class Places:
    """The root, the virtual tree, and namespaces of whatever kind."""

    def __init__(self, root: Root, local: LocalNamespace) -> None:
        self._root = root
        self._local = local
        self._virtual: VirtualPlace | None = None
        self.find: Callable[[int], Place | None] | None = None
        """Set where a mount has other kinds of namespaces: the place of an inode, None for a local one. It is asked for
        every call, so it is quick."""

    def add_virtual(self, virtual: VirtualPlace) -> None:
        """The mount is made, and can be asked about itself."""
        self._virtual = self._root.virtual = virtual

    def of(self, ino: int) -> Place:
        """The place of an inode. ENOENT for the virtual tree where there is none."""
        if ino == ROOT_ID:
            return self._root
        if is_virtual(ino):
            if self._virtual is None:
                raise CallError(errno.ENOENT)
            return self._virtual
        if self.find is None:
            return self._local
        return self.find(ino) or self._local

    def of_rename(self, old_parent: int, parent: int) -> Place:
        """The place that a rename goes to, by its two directories. EXDEV between kinds, as between namespaces."""
        old, new = self.of(old_parent), self.of(parent)
        if old is new:
            return old
        for place in (self._virtual, self._root):
            if place is not None and (old is place or new is place):
                return place
        raise CallError(errno.EXDEV)
