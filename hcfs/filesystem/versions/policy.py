"""Where kinds of namespaces differ in what becomes of versions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from hcfs.filesystem.calls import Blocking
from hcfs.filesystem.versions.version import Version


class Closing(Protocol):
    """What the closes of a version's descriptors and handles lead to."""

    def flush(self, version: Version) -> Blocking[None] | None:
        """A descriptor is closed: make what was written safe to publish. The lock isn't held."""

    def last_writer_closed(self, version: Version, *, used: bool) -> None:
        """Publish, drop or abandon it. used: its last handle was written through or closed, so the open that made it
        had come back. Lock held; memory only."""


class VersionPolicy(Protocol):
    """One for each kind of namespace in which versions are more than files of this device. Lock held, memory only."""

    closing: Closing

    def begun(self, version: Version) -> None:
        """A version has its first name."""

    def moved(self, version: Version) -> None:
        """A version that isn't published has another name."""

    def publishing(self, version: Version, parent: int, name: bytes) -> AbstractContextManager[None]:
        """Around the transaction that publishes a version under a name. What it raises, or what is raised within,
        leaves the version as it was."""

    def keeps_damaged(self, oid: int, generation: int, reason: str) -> bool:
        """Whether a damaged object keeps its names. Lock not held."""

    def known_as(self, oid: int) -> int:
        """The inode number by which the kernel knows an object. Lock not held."""


class Policies:
    """Which namespace has which. Local-only ones have none."""

    def __init__(self) -> None:
        self.find: Callable[[int], VersionPolicy | None] | None = None
        """Set where a mount has others: the policy of a namespace, by its id."""

    def of(self, namespace: int) -> VersionPolicy | None:
        """The policy of a namespace; None for a local-only one."""
        return None if self.find is None else self.find(namespace)
