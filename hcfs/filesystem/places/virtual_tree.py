"""The `.hcfs` tree at the mount's root: what hcfs knows about itself, as files for cat, jq and Prometheus."""

from __future__ import annotations

import errno
import json
import stat
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hcfs.filesystem.calls import CallError
from hcfs.filesystem.inodes import VIRTUAL
from hcfs.store import ROOT_ID, Attributes, Kind

NAME = b".hcfs"
_TREE, _QUARANTINE, _NAMESPACES = (VIRTUAL + n for n in range(1, 4))
_CONTROL = VIRTUAL + 4
_FILES = VIRTUAL + 16


class Member(NamedTuple):
    """An entry of a directory whose entries come and go, and its content."""

    name: bytes
    oid: int
    content: Callable[[], bytes]


class VirtualTree:
    """Owned by root, and computed when asked: sizes read as 0, as in /proc, and a file's content is taken when it is
    opened. Read-only but for the control file, which belongs to whoever owns the mount's root. From memory; thread-safe
    as far as its sources are."""

    def __init__(
        self,
        files: Mapping[str, Callable[[], bytes]],
        namespaces: Callable[[], list[Member]],
        quarantined: Callable[[], list[Member]],
        owner: Callable[[], tuple[int, int]],
    ) -> None:
        """files: name and content of the plain files. namespaces, quarantined: entries of the two directories. owner:
        user and group of the mount's root."""
        self._files = {_FILES + number: (name.encode(), files[name]) for number, name in enumerate(files)}
        self._members = {_NAMESPACES: namespaces, _QUARANTINE: quarantined}
        self._owner = owner
        self._made_ns = time.time_ns()

    @staticmethod
    def is_control(ino: int) -> bool:
        """Whether the inode is the control file."""
        return ino == _CONTROL

    def may_administer(self, uid: int) -> bool:
        """Whether a user may use the control file."""
        return uid in (0, self._owner()[0])

    @property
    def root(self) -> int:
        """Inode of `.hcfs` itself."""
        return _TREE

    def lookup(self, parent: int, name: bytes) -> int | None:
        """Inode of an entry; ENOTDIR."""
        if name == b".":
            return parent
        if name == b"..":
            return ROOT_ID if parent == _TREE else _TREE
        if parent == ROOT_ID:
            return _TREE
        return dict(self.entries(parent)).get(name)

    def entries(self, ino: int) -> list[tuple[bytes, int]]:
        """Name and inode of each entry of a directory; ENOTDIR."""
        if ino == _TREE:
            files = [(name, number) for number, (name, _) in self._files.items()]
            return [*files, (b"quarantine", _QUARANTINE), (b"namespaces", _NAMESPACES), (b"control", _CONTROL)]
        members = self._members.get(ino)
        if members is None:
            raise CallError(errno.ENOTDIR)
        return [(member.name, VIRTUAL | member.oid) for member in members()]

    def attributes(self, ino: int) -> Attributes:
        """Attributes of an inode, whether its object is still there or not: opening it will tell."""
        directory = ino == _TREE or ino in self._members
        kind = Kind.DIRECTORY if directory else Kind.FILE
        mode = stat.S_IFDIR | 0o555 if directory else stat.S_IFREG | (0o600 if ino == _CONTROL else 0o444)
        uid, gid = self._owner() if ino == _CONTROL else (0, 0)
        return Attributes(
            id=ino,
            kind=kind,
            mode=mode,
            uid=uid,
            gid=gid,
            nlink=2 if directory else 1,
            size=0,
            blocks=0,
            atime_ns=self._made_ns,
            mtime_ns=self._made_ns,
            ctime_ns=self._made_ns,
            generation=0,
            last_access_ns=0,
            state="committed",
        )

    def content(self, ino: int) -> bytes:
        """What a file says now; EISDIR, or ESTALE when what it is about is gone."""
        if ino == _TREE or ino in self._members:
            raise CallError(errno.EISDIR)
        file = self._files.get(ino)
        if file is not None:
            return file[1]()
        for members in self._members.values():
            for member in members():
                if VIRTUAL | member.oid == ino:
                    return member.content()
        raise CallError(errno.ESTALE)


def as_json(value: Any) -> bytes:
    """Indented, with a newline at the end."""
    return json.dumps(value, indent=2, default=str).encode() + b"\n"
