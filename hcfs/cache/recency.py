"""Least-recently-used order: one doubly linked list a group, its links in columns indexed by slot."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from hcfs.cache.columns import NIL, grow
from hcfs.store.attributes import SLOT_MASK


class Walk:
    """A place in one group's list, on the way from its least to its most recently used object.

    It stays good while objects are touched and removed between two calls of `Recency.advance`. Objects used after the
    walk began are not met by it, so every walk ends.
    """

    __slots__ = ("group", "last_stamp", "slot", "stamp")

    def __init__(self, group: int, last_stamp: int) -> None:
        self.group = group
        self.last_stamp = last_stamp
        self.slot = NIL
        self.stamp = 0


class Recency:
    """Who was used before whom, within each group (one segment of a namespace) and, by comparing stamps, among them.

    Stamps count uses: each use takes the next one, so lists are in ascending order of stamps and the oldest of several
    groups is the one whose head has the smallest. A clock would give ties, and a wall clock steps backwards.

    28 bytes an object. add, touch and remove take constant time. Not thread-safe: the caller holds the cache's lock.
    """

    def __init__(self) -> None:
        self._ids = array("Q")
        self._stamps = array("Q")
        self._groups = array("I")
        self._older = array("I")
        self._newer = array("I")
        self._heads: dict[int, int] = {}
        self._tails: dict[int, int] = {}
        self._stamp = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __contains__(self, oid: int) -> bool:
        slot = oid & SLOT_MASK
        return slot < len(self._ids) and self._ids[slot] == oid and self._groups[slot] != NIL

    def was_last_in_slot(self, oid: int) -> bool:
        """Whether the slot's latest user, present or removed, is this very object."""
        slot = oid & SLOT_MASK
        return slot < len(self._ids) and self._ids[slot] == oid

    def stamp_of(self, oid: int) -> int:
        """The stamp of the object's last use; 0 when it is in no list."""
        return self._stamps[oid & SLOT_MASK] if oid in self else 0

    def group_of(self, oid: int) -> int | None:
        """The group whose list has the object, if any."""
        return self._groups[oid & SLOT_MASK] if oid in self else None

    def add(self, oid: int, group: int) -> None:
        """Append a new object as its group's most recently used. One that is present moves there."""
        slot = oid & SLOT_MASK
        self.reserve(slot)
        if self._groups[slot] != NIL:
            self._unlink(slot)
        self._ids[slot] = oid
        self._groups[slot] = group
        self._append(slot, group)
        self._length += 1

    def touch(self, oid: int) -> bool:
        """Make the object its group's most recently used; False when it is in no list."""
        slot = oid & SLOT_MASK
        if slot >= len(self._ids) or self._ids[slot] != oid or self._groups[slot] == NIL:
            return False
        group = self._groups[slot]
        if self._newer[slot] == NIL:
            self._stamp += 1
            self._stamps[slot] = self._stamp
        else:
            self._unlink(slot)
            self._groups[slot] = group
            self._append(slot, group)
            self._length += 1
        return True

    def remove(self, oid: int) -> bool:
        """Take the object out of its list; False when it is in none."""
        if oid not in self:
            return False
        self._unlink(oid & SLOT_MASK)
        return True

    def reserve(self, slot: int) -> None:
        """Make room for `slot` and all below it."""
        if slot >= len(self._ids):
            grow(self._ids, slot, 0)
            grow(self._stamps, slot, 0)
            grow(self._groups, slot, NIL)
            grow(self._older, slot, NIL)
            grow(self._newer, slot, NIL)

    def oldest(self, group: int) -> int | None:
        """The group's least recently used object, if it has any."""
        slot = self._heads.get(group, NIL)
        return None if slot == NIL else self._ids[slot]

    def latest_first(self, group: int) -> Iterator[int]:
        """The group's objects, the most recently used first. The one that was handed out last may be moved away."""
        slot = self._tails.get(group, NIL)
        while slot != NIL:
            older = self._older[slot]
            yield self._ids[slot]
            slot = older

    def move_to_front(self, oid: int, group: int) -> None:
        """Make an object that is present the group's least recently used, which it must be by its stamp."""
        slot = oid & SLOT_MASK
        self._unlink(slot)
        head = self._heads.get(group, NIL)
        assert head == NIL or self._stamps[slot] < self._stamps[head]
        self._groups[slot] = group
        self._older[slot] = NIL
        self._newer[slot] = head
        self._heads[group] = slot
        if head == NIL:
            self._tails[group] = slot
        else:
            self._older[head] = slot
        self._length += 1

    def heads(self, groups: Iterable[int] | None = None) -> list[tuple[int, int]]:
        """(stamp, group) of the least recently used object of each group that has any; all groups by default."""
        wanted = self._heads if groups is None else [group for group in groups if group in self._heads]
        return [(self._stamps[self._heads[group]], group) for group in wanted]

    def walk(self, group: int) -> Walk:
        """A walk through the group's list as it is used until now."""
        return Walk(group, self._stamp)

    def advance(self, walk: Walk, limit: int) -> list[tuple[int, int]]:
        """The next (stamp, object id) of the walk, at most `limit`; none at its end."""
        stamps, ids, newer, last = self._stamps, self._ids, self._newer, walk.last_stamp
        slot = walk.slot
        if slot != NIL and self._groups[slot] == walk.group and stamps[slot] == walk.stamp:
            slot = newer[slot]
        else:
            # The object where the walk stood was used or removed since: find the place again. What was removed isn't
            # met again, so this passes only the objects that the caller left in the list.
            slot = self._heads.get(walk.group, NIL)
            while slot != NIL and stamps[slot] <= walk.stamp:
                slot = newer[slot]
        found: list[tuple[int, int]] = []
        while slot != NIL and len(found) < limit:
            stamp = stamps[slot]
            if stamp > last:
                break
            found.append((stamp, ids[slot]))
            walk.slot, walk.stamp = slot, stamp
            slot = newer[slot]
        return found

    def _append(self, slot: int, group: int) -> None:
        self._stamp += 1
        self._stamps[slot] = self._stamp
        tail = self._tails.get(group, NIL)
        self._older[slot] = tail
        self._newer[slot] = NIL
        self._tails[group] = slot
        if tail == NIL:
            self._heads[group] = slot
        else:
            self._newer[tail] = slot

    def _unlink(self, slot: int) -> None:
        group = self._groups[slot]
        older, newer = self._older[slot], self._newer[slot]
        if older != NIL:
            self._newer[older] = newer
        elif newer != NIL:
            self._heads[group] = newer
        else:
            del self._heads[group]
        if newer != NIL:
            self._older[newer] = older
        elif older != NIL:
            self._tails[group] = older
        else:
            del self._tails[group]
        self._groups[slot] = NIL
        self._length -= 1
