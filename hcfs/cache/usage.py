"""What each namespace, and each cache salt in it, occupies: counted as objects come and go, never by walking them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

from hcfs.cache.columns import grow
from hcfs.cache.salts import salt_of
from hcfs.store import BLOCK
from hcfs.store.attributes import SLOT_MASK


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose an object is: a namespace, by the id of its directory, and in it perhaps a cache salt."""

    namespace: int
    salt: bytes | None = None

    @property
    def whole(self) -> Owner:
        """The namespace, whatever the salt."""
        return self if self.salt is None else Owner(self.namespace)


@dataclass(frozen=True, slots=True)
class NamespaceUsage:
    """A moment of one namespace."""

    objects: int = 0
    """Committed files that have a name."""
    used_bytes: int = 0
    """Whole blocks that they occupy."""
    evictions: int = 0
    """Objects evicted from it since the mount began."""
    salts: Mapping[str, int] = field(default_factory=dict)
    """Of used_bytes, what names with each LMCache cache salt occupy; salts that occupy nothing are left out."""
    staged_bytes: int = 0
    """Whole blocks of files that are being written, or wait for their rename; of these no salts are shown."""


@dataclass(slots=True)
class _Count:
    objects: int = 0
    blocks: int = 0
    evictions: int = 0
    salts: dict[bytes, int] = field(default_factory=dict)
    """Salt to its index in UsageCounts' tables."""


class UsageCounts:
    """Counts by namespace (id of its directory) and salt.

    It remembers what it counted for each object, 8 bytes: what is taken off later is what was added, whatever became of
    the object's name or size in between. Not thread-safe: the caller holds the cache's lock.
    """

    def __init__(self) -> None:
        self._namespaces: dict[int, _Count] = {}
        self._blocks = array("I")
        self._salts = array("I")
        # Salts are numbered from 1, in tables, so that an object's salt is 4 bytes and not a reference to a string.
        self._salt_names = [b""]
        self._salt_blocks = [0]
        self._salt_objects = [0]
        self._unused: list[int] = []

    def add(self, oid: int, namespace: int, blocks: int, name: bytes) -> None:
        """Count a new object of `blocks` blocks."""
        slot = oid & SLOT_MASK
        count = self._namespaces.get(namespace)
        if count is None:
            count = self._namespaces[namespace] = _Count()
        count.objects += 1
        count.blocks += blocks
        self.reserve(slot)
        self._blocks[slot] = blocks
        salt = salt_of(name)
        if salt is None:
            self._salts[slot] = 0
        else:
            index = count.salts.get(salt) or self._number(count, salt)
            self._salts[slot] = index
            self._salt_blocks[index] += blocks
            self._salt_objects[index] += 1

    def remove(self, oid: int, namespace: int) -> None:
        """Take an object's count back; it was added, and not removed since."""
        slot = oid & SLOT_MASK
        count = self._namespaces[namespace]
        blocks = self._blocks[slot]
        count.objects -= 1
        count.blocks -= blocks
        index = self._salts[slot]
        if index:
            self._salt_blocks[index] -= blocks
            self._salt_objects[index] -= 1
            if not self._salt_objects[index]:
                del count.salts[self._salt_names[index]]
                self._unused.append(index)

    def reserve(self, slot: int) -> None:
        """Make room for `slot` and all below it."""
        if slot >= len(self._blocks):
            grow(self._blocks, slot, 0)
            grow(self._salts, slot, 0)

    def blocks_of(self, oid: int) -> int:
        """Blocks counted for an object that was added, also after its removal until its slot is used again."""
        return self._blocks[oid & SLOT_MASK]

    def blocks_in(self, owner: Owner) -> int:
        """Blocks counted for a namespace or for a salt in it."""
        count = self._namespaces.get(owner.namespace)
        if count is None:
            return 0
        return count.blocks if owner.salt is None else self._salt_blocks[count.salts.get(owner.salt, 0)]

    def salts(self, namespace: int) -> dict[bytes, int]:
        """Blocks of each salt that has objects in the namespace."""
        count = self._namespaces.get(namespace)
        return {} if count is None else {salt: self._salt_blocks[index] for salt, index in count.salts.items()}

    def has_salt(self, oid: int, salt: bytes) -> bool:
        """Whether an object that was added, and not removed since, has this salt."""
        return self._salt_names[self._salts[oid & SLOT_MASK]] == salt

    def count_eviction(self, namespace: int) -> None:
        """One object was evicted from the namespace."""
        if namespace in self._namespaces:
            self._namespaces[namespace].evictions += 1

    def of(self, namespace: int) -> NamespaceUsage:
        """The namespace's moment; zeros for one that never had a file. staged_bytes is left at 0: only committed files
        are counted here."""
        count = self._namespaces.get(namespace)
        if count is None:
            return NamespaceUsage()
        salts: dict[str, int] = {}
        for salt, blocks in self.salts(namespace).items():
            if blocks:
                text = salt.decode(errors="backslashreplace")
                salts[text] = salts.get(text, 0) + blocks * BLOCK
        return NamespaceUsage(count.objects, count.blocks * BLOCK, count.evictions, salts)

    def keep_only(self, namespaces: set[int]) -> None:
        """Forget the empty ones that aren't among `namespaces`: their directories are gone."""
        for namespace in [ns for ns, count in self._namespaces.items() if not count.objects and ns not in namespaces]:
            del self._namespaces[namespace]

    def _number(self, count: _Count, salt: bytes) -> int:
        if self._unused:
            index = self._unused.pop()
            self._salt_names[index] = salt
        else:
            index = len(self._salt_names)
            self._salt_names.append(salt)
            self._salt_blocks.append(0)
            self._salt_objects.append(0)
        count.salts[salt] = index
        return index
