"""LOOKUP and GETATTR: what a name or an inode is, to this caller, now."""

from __future__ import annotations

from abc import abstractmethod

from hcfs.mount.answers import Blocking, Caller, Entry
from hcfs.mount.core import Core, Identity
from hcfs.mount.versions import Fate, Version
from hcfs.store import ROOT_ID, Kind, Staged
from hcfs.store.errors import NoSuchObject

_TRIES = 4


class Lookup(Core):
    """All from memory, but in a namespace with an origin. A name without versions, which is nearly every name, costs no
    look at /proc."""

    def lookup(self, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        """Resolve a name for the caller; ino 0 when it is absent. ENAMETOOLONG, ENOTDIR, ESTALE."""
        self.check_name(name)
        if name in (b".", b".."):
            return self._dot(parent, name)
        self.calls.lookups += 1
        who = Identity(caller)
        for _ in range(_TRIES):
            with self.lock:
                entry = self._resolve(parent, name, who)
                if self.repeats:
                    entry = self._keep_for_repeat(parent, name, who, entry)
            attributes = entry.attributes
            if attributes is None:
                self.calls.lookup_misses += 1
                return entry
            # The cache is asked without our lock, so an eviction may come between: then the name is looked up again.
            if attributes.kind is not Kind.FILE or attributes.state == "staged" or self.cache.looked_up(entry.ino):
                return entry
        self.calls.lookup_misses += 1
        return Entry(0, None, 0.0, 0.0)

    def getattr(self, ino: int) -> Entry:
        """Attributes of an inode; ESTALE when it is gone."""
        with self.lock:
            version = self.versions.get(ino)
            if version is not None and version.fate is not Fate.PUBLISHED:
                return self.version_entry(version)
            try:
                attributes = self.object_attributes(ino)
            except NoSuchObject:
                replaced = self.replaced(ino)
                if replaced is None:
                    raise
                attributes = replaced.attributes
            fleeting = attributes.nlink == 0
        return self.object_entry(attributes, fleeting)

    def readlink(self, ino: int) -> bytes:
        """A symlink's target."""
        return self.store.readlink(ino)

    @abstractmethod
    def _keep_for_repeat(self, parent: int, name: bytes, who: Identity, entry: Entry) -> Entry:
        """The answer to the lookup of a walk that is perhaps repeated. Lock held."""

    def _resolve(self, parent: int, name: bytes, who: Identity) -> Entry:
        versions = self.versions.of_name(parent, name)
        if versions:
            version = self.visible_version(parent, name, who)
            if version is not None:
                return self.version_entry(version)
        oid = self.store.lookup(parent, name)
        if oid is None:
            return Entry(0, None, 0.0 if versions else self.entry_timeout, 0.0)
        if self.versions.any_unbound():
            bound = self._bind(oid, parent, name, who)
            if bound is not None:
                return self.version_entry(bound)
        return self.object_entry(self.object_attributes(oid), bool(versions))

    def _bind(self, oid: int, parent: int, name: bytes, who: Identity) -> Version | None:
        """A write-open of an object with several names made a version; this lookup, which the kernel repeats for it,
        says which name is meant. Not one that comes later, when the repeated walk has led somewhere else."""
        if not self.sent_back(who):
            return None
        staging = self.is_staging_name(parent, name)
        version = self.versions.bind(oid, who.process, parent, name, staging=staging)
        if version is not None:
            self.charge_to_name(version.staged, parent, name)
        return version

    @abstractmethod
    def charge_to_name(self, staged: Staged, parent: int, name: bytes) -> None:
        """Let what is staged count for the quotas of a name."""

    def _dot(self, parent: int, name: bytes) -> Entry:
        ino = parent
        if name == b".." and parent != ROOT_ID:
            if self.store.attributes(parent).kind is not Kind.DIRECTORY:
                raise NoSuchObject("only directories have a parent")
            ino = self.store.parent_of(parent)
        return self.getattr(ino)
