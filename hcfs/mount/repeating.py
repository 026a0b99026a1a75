"""What is kept for calls that the kernel repeats: see repeats.py."""

from __future__ import annotations

import os

from hcfs.errors import HcfsError
from hcfs.mount.answers import Caller, Entry
from hcfs.mount.core import Identity
from hcfs.mount.damage import Damage
from hcfs.mount.lockfiles import is_lock_name
from hcfs.store import Attributes, Kind


class Repeating(Damage):
    """The second lookup of a walk finds what its call will be able to use."""

    def _keep_for_repeat(self, parent: int, name: bytes, who: Identity, entry: Entry) -> Entry:
        attributes = entry.attributes
        repeat = self.repeats.of(who.caller.thread)
        if repeat is None or attributes is None or attributes.kind is not Kind.FILE or is_lock_name(name):
            return entry
        if attributes.state == "staged":
            return entry
        try:
            if not repeat.writes:
                repeat.keep(self.store.pin(entry.ino), self.verifies_at_open(entry.ino))
                return entry
            self.version_of_name(parent, name, who)
        except HcfsError:
            # Gone, or read-only by now: the call itself will be told.
            return entry
        return self._resolve(parent, name, who)

    def verifies_at_open(self, ino: int) -> bool:
        """Whether the object's namespace has every byte checked before an open returns."""
        namespace = self.store.namespace_of(ino)
        return namespace != 0 and self.cache.namespaces.options(namespace).verify == "open"


def may_open(attributes: Attributes, flags: int, caller: Caller) -> bool:
    """Whether the mode's bits say so without a look at the caller's further groups."""
    wanted = {os.O_WRONLY: 2, os.O_RDWR: 6}[flags & os.O_ACCMODE]
    shift = 6 if caller.uid == attributes.uid else 3 if caller.gid == attributes.gid else 0
    return caller.uid == 0 or attributes.mode >> shift & wanted == wanted
