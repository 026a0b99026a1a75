"""Versions: what writers make of a name before anybody else sees it, and the register of them all."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple

from hcfs.host.process import Process
from hcfs.store import Pin, Staged

Name = tuple[int, bytes]
"""Directory id, name."""


class Fate(enum.Enum):
    """What has become of a version."""

    STAGED = "staged"
    """It has its name, for its writer's process."""
    PUBLISHED = "published"
    """It is the committed object of its id; writes on handles that are still open fail."""
    NAMELESS = "nameless"
    """Its name was removed or replaced, or it was dropped unmodified: open handles go on, nothing is published."""
    ABANDONED = "abandoned"
    """Its writer was killed or gave it up: every operation on a handle fails."""


class UploadedVersion(NamedTuple):
    """A version's content that reached the origin before it is published."""

    name: Name
    """Under whose key."""
    changes: int
    """The version's `changes` then."""
    etag: str


class Version:
    """One writer's version of one name. All fields are guarded by the filesystem's lock."""

    __slots__ = (
        "base",
        "changes",
        "closed_at",
        "closing",
        "created_at",
        "fate",
        "flushed_changes",
        "handles",
        "name",
        "opened",
        "owner",
        "parent",
        "pin",
        "staged",
        "staging",
        "uploaded",
        "writers",
        "writing",
        "xattr_changes",
    )

    def __init__(
        self,
        staged: Staged,
        owner: Process | None,
        parent: int,
        name: bytes,
        *,
        staging: bool,
        created_at: float,
    ) -> None:
        self.staged = staged
        self.owner = owner
        """None: the writer is in another pid namespace, and the version belongs to the one handle that opened it."""
        self.parent = parent
        """0 while it waits for the lookup that says by which of the base's hard links it was opened."""
        self.name = name
        self.base = staged.base
        """Id of the committed object that it is a view of until it is modified."""
        self.staging = staging
        """Its name is a staging name: the last close doesn't publish it."""
        self.created_at = created_at
        self.fate = Fate.STAGED
        self.opened = False
        """False between the ESTALE that made it and the open that the kernel then repeats."""
        self.handles = 0
        self.writers = 0
        """Handles opened for writing, of `handles`."""
        self.writing = 0
        """Writes and truncations under way."""
        self.changes = 0
        """Writes and truncations begun so far."""
        self.flushed_changes = -1
        """`changes` when the last FLUSH had sealed it."""
        self.closing = False
        """Its last writer has closed, and it is sealed and published in the background."""
        self.closed_at: float | None = None
        """When its last writer closed."""
        self.xattr_changes: dict[bytes, bytes | None] = {}
        """What became of an unmodified version's extended attributes: its base gets them when it is dropped."""
        self.uploaded: UploadedVersion | None = None
        """What of it the origin has already, where a close waits for that."""
        self.pin: Pin | None = None
        """Once published, what handles that are still open read through."""

    @property
    def ino(self) -> int:
        """Its inode number, which is the object's id once it is published."""
        return self.staged.id

    @property
    def key(self) -> Name:
        return self.parent, self.name

    @property
    def is_staged(self) -> bool:
        """Whether it has its name, and is neither published nor given up."""
        return self.fate is Fate.STAGED

    def is_uploaded_as(self, parent: int, name: bytes) -> bool:
        """Whether its present content was uploaded under this name."""
        uploaded = self.uploaded
        return uploaded is not None and uploaded.name == (parent, name) and uploaded.changes == self.changes

    @property
    def is_promised_empty(self) -> bool:
        """Whether it is an empty file that an open was told to come back for, and hasn't yet."""
        return not self.opened and self.base is None

    def belongs_to(self, process: Process | None) -> bool:
        """Whether it is the version of this process; None: of one that can't be told, for which it was just made."""
        if self.owner is None:
            return process is None and not self.opened
        return self.owner == process

    @property
    def is_open_to_calls(self) -> bool:
        """Whether its inode number means this version: once it is published it means the committed object."""
        return self.fate is not Fate.PUBLISHED

    @property
    def failed(self) -> int:
        """The errno that made it unpublishable, 0 for none."""
        return self.staged.failed

    @property
    def modified(self) -> bool:
        """Whether it differs from its base in content; a version without a base is new, so it does."""
        return self.base is None or self.changes > 0

    @property
    def flushed(self) -> bool:
        """Whether it is sealed, with no write since the FLUSH that did it."""
        return not self.failed and not self.writing and self.flushed_changes == self.changes

    @property
    def stage(self) -> str:
        """Where it stands, in a word."""
        if self.fate is not Fate.STAGED:
            return str(self.fate.value)
        return "writing" if self.writers else "closing" if self.closing else "waiting" if self.opened else "opening"

    @property
    def waiting(self) -> bool:
        """Whether it is a closed version under a staging name: whole, waiting for its rename."""
        return self.staging and self.closed_at is not None and self.writers == 0 and self.opened


class Versions:
    """The register of versions: by inode number while the kernel may ask for it, by name while it has one.

    Not thread-safe: the filesystem's lock guards it.
    """

    def __init__(self) -> None:
        self._by_ino: dict[int, Version] = {}
        self._by_name: dict[Name, list[Version]] = {}
        self._names: dict[int, dict[bytes, None]] = {}
        self._unbound: dict[tuple[int, Process | None], Version] = {}

    def add(self, version: Version) -> None:
        """Register a new version, under its name unless it waits for one."""
        self._by_ino[version.ino] = version
        if version.parent:
            self._attach(version)
        else:
            assert version.base is not None
            self._unbound[version.base, version.owner] = version

    def bind(self, base: int, owner: Process | None, parent: int, name: bytes, *, staging: bool) -> Version | None:
        """Give the version that waits for a name of `base` this one; None when none waits."""
        version = self._unbound.pop((base, owner), None)
        if version is not None:
            self._rebind(version, parent, name, staging=staging)
        return version

    def waits_for_name(self, base: int, owner: Process | None) -> Version | None:
        """The version that a write-open of a hard-linked `base` made and that still has to learn its name."""
        return self._unbound.get((base, owner))

    def move(self, version: Version, parent: int, name: bytes, *, staging: bool) -> None:
        """Give a version another name."""
        self._detach(version)
        self._rebind(version, parent, name, staging=staging)

    def unname(self, version: Version) -> None:
        """Take a version's name away; its inode number stays known."""
        if version.parent:
            self._detach(version)
        elif version.base is not None:
            self._unbound.pop((version.base, version.owner), None)

    def forget(self, version: Version) -> None:
        """Drop all memory of a version that has no name."""
        self._by_ino.pop(version.ino, None)

    def get(self, ino: int) -> Version | None:
        """The version with this inode number, with or without a name."""
        return self._by_ino.get(ino)

    def of_name(self, parent: int, name: bytes) -> list[Version]:
        """All versions of a name, oldest first; not to be changed."""
        return self._by_name.get((parent, name), _NONE)

    def in_directory(self, parent: int) -> list[Version]:
        """All versions whose names are in a directory."""
        return [version for name in self._names.get(parent, ()) for version in self._by_name[parent, name]]

    def any_unbound(self) -> bool:
        """Whether a version waits for its name."""
        return bool(self._unbound)

    def __iter__(self) -> Iterator[Version]:
        return iter(list(self._by_ino.values()))

    def _rebind(self, version: Version, parent: int, name: bytes, *, staging: bool) -> None:
        version.parent, version.name, version.staging = parent, name, staging
        self._attach(version)

    def _attach(self, version: Version) -> None:
        self._by_name.setdefault(version.key, []).append(version)
        self._names.setdefault(version.parent, {})[version.name] = None

    def _detach(self, version: Version) -> None:
        versions = self._by_name.get(version.key, _NONE)
        if version not in versions:
            return
        versions.remove(version)
        if not versions:
            del self._by_name[version.key]
            names = self._names[version.parent]
            del names[version.name]
            if not names:
                del self._names[version.parent]


_NONE: list[Version] = []
