"""What an origin has, as a mount knows it: its objects by directory and name, of one moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from hcfs.filesystem.versions.version import Name
from hcfs.origin import Listed


class Remote:
    """One content of one name at an origin. It keeps its inode number while it is fetched, evicted and fetched again,
    since the bytes stay the same ones."""

    __slots__ = ("__weakref__", "ino", "listed", "name", "namespace", "parent", "successor")

    def __init__(self, namespace: int, parent: int, name: bytes, listed: Listed, ino: int) -> None:
        """parent: the directory's id in the store."""
        self.namespace = namespace
        self.parent = parent
        self.name = name
        self.listed = listed
        self.ino = ino
        self.successor: Remote | None = None
        """What the name stands for now, by another inode number: bytes of this one's were read that turned out not to
        be the origin's, and the kernel may have pages of them."""


class RemoteListing:
    """What an origin had at one moment, and what this device has changed there since."""

    def __init__(
        self,
        remotes: Iterable[Remote],
        at: float,
        *,
        refused: Mapping[Name, str] = MappingProxyType({}),
        directories: Collection[int] = (),
        marked: Collection[int] = (),
    ) -> None:
        """at: seconds of the core's clock when the origin was asked. refused: names under which the origin has
        something that can't be told or mustn't be shown, and why. directories: ids of those that it has; marked: of
        those of them that a mark keeps there."""
        self.at = at
        self.refused = dict(refused)
        self.directories = frozenset(directories)
        self.marked = frozenset(marked)
        self.remotes: dict[Name, Remote] = {}
        self._in_directory: dict[int, dict[bytes, None]] = {}
        for remote in remotes:
            self.set((remote.parent, remote.name), remote)

    def set(self, name: Name, remote: Remote | None) -> None:
        """A name's content at the origin has changed by what this device did; None: it was removed."""
        parent, own = name
        self.refused.pop(name, None)
        if remote is not None:
            self.remotes[name] = remote
            self._in_directory.setdefault(parent, {})[own] = None
        elif self.remotes.pop(name, None) is not None:
            del self._in_directory[parent][own]

    def names_in(self, directory: int) -> list[bytes]:
        """Names of the files in a directory."""
        return list(self._in_directory.get(directory, ()))


def split_key(key: str) -> list[bytes] | None:
    """Directories and name of a key; None where a file can't be called so."""
    parts = [part.encode(errors="surrogateescape") for part in key.split("/")]
    fits = all(0 < len(part) <= 1024 and part not in (b".", b"..") and b"\0" not in part for part in parts)
    return parts if fits else None
