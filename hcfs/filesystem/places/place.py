"""Where a call can go to: one object for each kind of place."""

from __future__ import annotations

from typing import Protocol

from hcfs.filesystem.calls import Blocking, Caller, Created, Entry, Opened
from hcfs.filesystem.operations.attribute_changes import Changes


class Place(Protocol):
    """The calls by inode, or by a directory and a name in it. Any thread may call.

    What returns Blocking waits for I/O; the others answer from memory. Refusals are HcfsError with an errno; anything
    else that is raised is a bug.
    """

    def lookup(self, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        """Resolve a name for the caller; ino 0 when it is absent. ENAMETOOLONG, ENOTDIR, ESTALE."""

    def getattr(self, ino: int) -> Entry:
        """Attributes of an inode; ESTALE when it is gone."""

    def readlink(self, ino: int) -> bytes:
        """A symlink's target."""

    def setattr(self, ino: int, changes: Changes, number: int | None, caller: Caller) -> Entry | Blocking[Entry]:
        """Change attributes. number: the handle of an ftruncate."""

    def open(self, ino: int, flags: int, caller: Caller) -> Opened | Blocking[Opened]:
        """Open a file. ESTALE: look the name up again."""

    def create(self, parent: int, name: bytes, mode: int, flags: int, caller: Caller) -> Created:
        """Make a file that the caller doesn't see yet, and open it."""

    def opendir(self, ino: int, caller: Caller) -> Opened:
        """Open a directory for listing."""

    def mkdir(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        """Make a directory."""

    def symlink(self, parent: int, name: bytes, target: bytes, caller: Caller) -> Entry:
        """Make a symlink."""

    def mknod(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        """Make an empty regular file; EPERM for all other kinds."""

    def unlink(self, parent: int, name: bytes, caller: Caller) -> Blocking[None] | None:
        """Remove what a name means to the caller."""

    def rmdir(self, parent: int, name: bytes) -> None:
        """Remove an empty directory."""

    def link(self, ino: int, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        """Give a file a second name, in this place. EXDEV for one of another namespace."""

    def rename(
        self, old_parent: int, old_name: bytes, parent: int, name: bytes, flags: int, caller: Caller
    ) -> Blocking[None] | None:
        """Rename what the old name, which is in this place, means to the caller."""

    def getxattr(self, ino: int, name: bytes) -> bytes | Blocking[bytes]:
        """ENODATA when there is none."""

    def listxattr(self, ino: int) -> list[bytes]:
        """Names of extended attributes."""

    def setxattr(self, ino: int, name: bytes, value: bytes, caller: Caller) -> None:
        """Set an attribute, or an option of a namespace."""

    def removexattr(self, ino: int, name: bytes, caller: Caller) -> None:
        """Remove an attribute, or set an option back to its default."""
