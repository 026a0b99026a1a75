"""What an object is, as the rest of hcfs sees it, and the extra that goes with its row."""

from __future__ import annotations

import stat
import struct
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Literal, NamedTuple

ROOT_ID = 1
NAME_MAX = 1024
"""Bytes in one component of a path"""
SLOT_MASK = 0xFFFFFFFF
MAX_SLOT = 1 << 26
"""No store has a higher slot; a small store's limit is lower (Superblock.max_slot)"""
INTERNAL_XATTR = b"hcfs."
"""Extended attributes that start so are the store's and the cache's own"""
UNSYNCED_XATTR = b"hcfs.sync"
"""That of a file whose bytes nobody else has: a repair sets it aside for no damage"""


def is_name(name: bytes) -> bool:
    """Whether a component of a path may be called so."""
    return 0 < len(name) <= NAME_MAX and b"/" not in name and b"\0" not in name and name not in (b".", b"..")


class Kind(IntEnum):
    FILE = 1
    DIRECTORY = 2
    SYMLINK = 3


class Flags(IntFlag):
    """Of an object, on the medium. Format: docs/format.md, "Flags"."""

    NONE = 0
    QUARANTINED = 1


class Attributes(NamedTuple):
    """One object's attributes; a tuple, which is made in a third of a frozen dataclass's time. Times in ns since 1970,
    blocks of 4,096 bytes."""

    id: int
    kind: Kind
    mode: int
    """With the file type bits"""
    uid: int
    gid: int
    nlink: int
    size: int
    blocks: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int
    generation: int
    """Sequence number of the commit that made the content"""
    last_access_ns: int
    state: Literal["staged", "committed", "quarantined"]


def kind_of(mode: int) -> Kind:
    """The kind of object that a mode's file type bits stand for."""
    if stat.S_ISDIR(mode):
        return Kind.DIRECTORY
    if stat.S_ISLNK(mode):
        return Kind.SYMLINK
    return Kind.FILE


_ENTRY = struct.Struct("<BHI")
_XATTR, _SYMLINK, _LINK = 1, 2, 3
ENTRY_BYTES = _ENTRY.size


@dataclass(slots=True)
class Extra:
    """The variable part of a row. Format: docs/format.md, "Extra"."""

    xattrs: dict[bytes, bytes] = field(default_factory=dict)
    target: bytes | None = None
    """Of a symlink"""
    links: list[tuple[int, bytes]] = field(default_factory=list)
    """(parent id, name) of names after the first; checkpoint pages only"""

    def encode(self) -> bytes:
        parts = []
        for key, value in self.xattrs.items():
            parts.append(_ENTRY.pack(_XATTR, len(key), len(value)) + key + value)
        if self.target is not None:
            parts.append(_ENTRY.pack(_SYMLINK, 0, len(self.target)) + self.target)
        for parent, name in self.links:
            parts.append(_ENTRY.pack(_LINK, len(name), 8) + name + parent.to_bytes(8, "little"))
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Extra:
        """Raises ValueError on bytes that aren't an extra."""
        extra, at, data = cls(), 0, bytes(data)
        while at < len(data):
            if at + ENTRY_BYTES > len(data):
                raise ValueError("extra ends within an entry's header")
            tag, key_length, value_length = _ENTRY.unpack_from(data, at)
            at += ENTRY_BYTES
            end = at + key_length + value_length
            if end > len(data):
                raise ValueError("extra ends within an entry")
            key, value = data[at : at + key_length], data[at + key_length : end]
            if tag == _XATTR:
                extra.xattrs[key] = value
            elif tag == _SYMLINK:
                extra.target = value
            elif tag == _LINK and value_length == 8:
                extra.links.append((int.from_bytes(value, "little"), key))
            else:
                raise ValueError(f"extra holds an entry with tag {tag}")
            at = end
        return extra
