"""What becomes of versions where nothing goes to an origin, though the files are an origin's."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from hcfs.filesystem.versions.policy import Closing
from hcfs.filesystem.versions.version import Version
from hcfs.remote.remote_damage import RemoteDamage


class ReadOnlyPolicy:
    """A VersionPolicy: only damage is another matter than in a local namespace."""

    def __init__(self, closing: Closing, damage: RemoteDamage) -> None:
        self.closing = closing
        self._damage = damage

    def begun(self, version: Version) -> None:
        """Nothing is noted."""

    def moved(self, version: Version) -> None:
        """The same."""

    def publishing(self, version: Version, parent: int, name: bytes) -> AbstractContextManager[None]:
        return nullcontext()

    def keeps_damaged(self, oid: int, generation: int, reason: str) -> bool:
        return self._damage.keeps(oid, generation, reason)

    def known_as(self, oid: int) -> int:
        return self._damage.known_as(oid)
