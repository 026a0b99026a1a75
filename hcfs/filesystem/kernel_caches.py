"""What the core tells the kernel about its caches, as the core sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from hcfs.filesystem.versions.version import Name


class KernelCaches(Protocol):
    """Changes of the daemon's own making that the kernel can't know of.

    Telling may block while the kernel works on the same directory, so only `forget_names_now` waits for it, and only
    threads that the kernel waits for in no directory may call that.
    """

    def forget_name(self, parent: int, name: bytes) -> None:
        """Soon, and without waiting: what the kernel knows of a name is void."""

    def forget_names_now(self, names: Iterable[Name]) -> None:
        """The same, done when this returns. Blocks."""

    def forget_attributes(self, ino: int) -> None:
        """Soon: the attributes of an inode have changed."""

    def forget_pages(self, ino: int) -> None:
        """Soon, after answers under way: the pages of an inode aren't to be used again."""
