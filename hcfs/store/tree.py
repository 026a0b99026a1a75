"""Names: which directory entry leads to which object. Not thread-safe: the store's lock guards it."""

from __future__ import annotations

import stat
from array import array

from hcfs.store.attributes import ENTRY_BYTES, ROOT_ID, SLOT_MASK
from hcfs.store.entries import MANY, Entries, ManyEntries
from hcfs.store.table import Table

ROOT_SLOT = ROOT_ID & SLOT_MASK
PARTS_SHOWN = 64


class Tree:
    """Directory entries over the slots of a table.

    A name costs a dict entry and its bytes, both shared between the two directions: name -> slot in the directory's
    dict, slot -> (parent slot, name) in two columns; further names of hard-linked objects are kept aside."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.children: dict[int, Entries] = {}
        """Entries by the directory's slot"""
        self.parent = array("I", [0])
        """Slot of the directory of the first name; 0: the object has no name"""
        self.name: list[bytes | None] = [None]
        self.links: dict[int, list[tuple[int, bytes]]] = {}
        """(parent slot, name) of the further names"""
        self.subdirectories: dict[int, int] = {}
        self.encoded_bytes = 0
        """Bytes of names in a checkpoint"""

    def _grow(self, slots: int) -> None:
        more = slots - len(self.parent)
        if more > 0:
            self.parent.frombytes(bytes(more * self.parent.itemsize))
            self.name.extend([None] * more)

    def parents(self, slots: int) -> array[int]:
        """The directory's slot of each slot's first name, 0 for none; for `slots` slots at least."""
        self._grow(slots)
        return self.parent

    def lookup(self, parent: int, name: bytes) -> int:
        """The slot that a name in a directory's slot leads to, or 0."""
        children = self.children.get(parent)
        return children.get(name, 0) if children else 0

    def nlink(self, slot: int) -> int:
        """Link count as stat shows it."""
        if stat.S_ISDIR(self._table.mode[slot]):
            return 2 + self.subdirectories.get(slot, 0)
        named = 1 if slot < len(self.parent) and self.parent[slot] else 0
        return named + len(self.links.get(slot, ()))

    def names(self, slot: int) -> list[tuple[int, bytes]]:
        """(parent slot, name) of each name; the root has none."""
        if slot >= len(self.parent) or not self.parent[slot]:
            return []
        first = self.name[slot]
        assert first is not None
        return [(self.parent[slot], first), *self.links.get(slot, ())]

    def add(self, parent: int, name: bytes, slot: int) -> None:
        """Let a name lead to a slot; a former holder of the name loses it."""
        children = self.children.get(parent)
        if children is None:
            children = self.children[parent] = {}
        former = children.get(name, 0)
        if former == slot:
            return
        if former:
            self.remove(parent, name)
        self._grow(max(slot, parent) + 1)
        children[name] = slot
        if len(children) > MANY and isinstance(children, dict):
            self.children[parent] = ManyEntries(children)
        if not self.parent[slot]:
            self.parent[slot] = parent
            self.name[slot] = name
            self.encoded_bytes += len(name)
        else:
            self.links.setdefault(slot, []).append((parent, name))
            self.encoded_bytes += ENTRY_BYTES + len(name) + 8
        if stat.S_ISDIR(self._table.mode[slot]):
            self.subdirectories[parent] = self.subdirectories.get(parent, 0) + 1

    def load(self, parent: int, names: list[bytes], runs: list[tuple[int, int, int]]) -> bool:
        """Add names of a directory at once, which lead to files that have none; runs: (first slot, index of its name,
        count). False, and nothing added, where that can't be done at once."""
        children = self.children.get(parent)
        if children is None:
            children = self.children[parent] = {}
        self._grow(max(parent, *(slot + count - 1 for slot, _, count in runs)) + 1)
        taken = any(map(children.get, names)) or len(set(names)) < len(names)
        if taken or any(any(self.parent[slot : slot + count]) for slot, _, count in runs):
            return False
        for slot, index, count in runs:
            own = names[index : index + count]
            children.update(zip(own, range(slot, slot + count), strict=True))
            self.parent[slot : slot + count] = array("I", [parent]) * count
            self.name[slot : slot + count] = own
        self.encoded_bytes += sum(map(len, names))
        if len(children) > MANY and isinstance(children, dict):
            self.children[parent] = ManyEntries(children)
        return True

    def remove(self, parent: int, name: bytes) -> int:
        """Take a name away; the slot it led to, or 0."""
        children = self.children.get(parent)
        slot = children.pop(name, 0) if children else 0
        if not slot:
            return 0
        if self.parent[slot] == parent and self.name[slot] == name:
            self.encoded_bytes -= len(name)
            further = self.links.get(slot)
            if further:
                self.parent[slot], self.name[slot] = further.pop(0)
                self.encoded_bytes -= ENTRY_BYTES + 8
            else:
                self.parent[slot], self.name[slot] = 0, None
        else:
            further = self.links[slot]
            further.remove((parent, name))
            self.encoded_bytes -= ENTRY_BYTES + len(name) + 8
        if slot in self.links and not self.links[slot]:
            del self.links[slot]
        if stat.S_ISDIR(self._table.mode[slot]):
            left = self.subdirectories.get(parent, 0) - 1
            if left > 0:
                self.subdirectories[parent] = left
            else:
                self.subdirectories.pop(parent, None)
        return slot

    def forget(self, slot: int) -> None:
        """The slot's row goes: drop the names that are left, and its entries if it was a directory."""
        for parent, name in self.names(slot):
            self.remove(parent, name)
        for name in list(self.children.get(slot, ())):
            self.remove(slot, name)
        self.children.pop(slot, None)
        self.subdirectories.pop(slot, None)

    def path(self, slot: int) -> bytes:
        """Path of the first name from the root, without a leading slash; b"" for the root and for what has no name."""
        return b"/".join(reversed(self._upwards(slot, len(self.parent))))

    def shown_path(self, slot: int) -> bytes:
        """The same for people: of a path of very many components the last ones, behind `...`. What is listed object by
        object would else take the square of the time and room."""
        parts = self._upwards(slot, PARTS_SHOWN + 1)
        if len(parts) > PARTS_SHOWN:
            parts[-1] = b"..."
        return b"/".join(reversed(parts))

    def _upwards(self, slot: int, most: int) -> list[bytes]:
        """The names from a slot up to the root, at most so many."""
        parts: list[bytes] = []
        # Damaged metadata can have directories that lie in each other.
        passed: set[int] = set()
        while slot != ROOT_SLOT and slot < len(self.parent) and self.parent[slot] and len(parts) < most:
            name = self.name[slot]
            assert name is not None
            if slot in passed:
                break
            passed.add(slot)
            parts.append(name)
            slot = self.parent[slot]
        return parts

    def reachable(self) -> set[int]:
        """Slots that the root's entries lead to, itself included."""
        found, todo = {ROOT_SLOT}, [ROOT_SLOT]
        while todo:
            inside = set(self.children.get(todo.pop(), {}).values()) - found
            found |= inside
            todo += inside
        return found

    def namespace(self, slot: int) -> int:
        """Slot of the namespace's directory that a slot lies under, itself included; 0 for the root and the
        nameless."""
        while slot and slot != ROOT_SLOT:
            parent = self.parent[slot] if slot < len(self.parent) else 0
            if parent == ROOT_SLOT:
                return slot
            slot = parent
        return 0

    def is_within(self, slot: int, ancestor: int) -> bool:
        """Whether `slot` is `ancestor` or lies under it."""
        while slot:
            if slot == ancestor:
                return True
            slot = self.parent[slot] if slot < len(self.parent) else 0
        return False
