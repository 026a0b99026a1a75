"""LOOKUP, GETATTR and READLINK: what a name or an inode is, to this caller, now."""

from __future__ import annotations

import errno

from hcfs.errors import HcfsError
from hcfs.filesystem.calls import Caller, CallError, Entry
from hcfs.filesystem.entries import ABSENT_ENTRY, Entries
from hcfs.filesystem.identity import CallerIdentity
from hcfs.filesystem.lock_files import is_lock_name
from hcfs.filesystem.versions.drafting import Drafting
from hcfs.filesystem.versions.estale_retries import EstaleRetries, Retry
from hcfs.filesystem.versions.replaced_names import ReplacedNames
from hcfs.filesystem.versions.version import Versions
from hcfs.filesystem.versions.version_names import VersionNames
from hcfs.filesystem.volume import Volume
from hcfs.store import NAME_MAX, ROOT_ID, Kind
from hcfs.store.errors import NoSuchObject

_TRIES = 4


def check_name(name: bytes) -> None:
    """ENAMETOOLONG for a name that is longer than f_namemax says."""
    if len(name) > NAME_MAX:
        raise CallError(errno.ENAMETOOLONG)


def verifies_at_open(volume: Volume, ino: int) -> bool:
    """Whether the object's namespace has every byte checked before an open returns."""
    namespace = volume.store.namespace_of(ino)
    return namespace != 0 and volume.cache.namespaces.options(namespace).verify == "open"


class Lookup:
    """All from memory. A name without versions, which is nearly every name, costs no look at /proc."""

    def __init__(
        self,
        volume: Volume,
        versions: Versions,
        names: VersionNames,
        retries: EstaleRetries,
        replaced: ReplacedNames,
        drafting: Drafting,
        entries: Entries,
    ) -> None:
        self._volume = volume
        self._store = volume.store
        self._cache = volume.cache
        self._lock = volume.lock
        self._counts = volume.counts
        self._versions = versions
        self._names = names
        self._retries = retries
        self._replaced = replaced
        self._drafting = drafting
        self._entries = entries

    def lookup(self, parent: int, name: bytes, caller: Caller) -> Entry:
        """Resolve a name for the caller; ino 0 when it is absent. ENAMETOOLONG, ENOTDIR, ESTALE."""
        if len(name) > NAME_MAX:
            check_name(name)
        if name in (b".", b".."):
            return self._dot(parent, name)
        self._counts.lookups += 1
        who = CallerIdentity(caller)
        for _ in range(_TRIES):
            with self._lock:
                entry = self._resolve(parent, name, who)
                if self._retries:
                    entry = self._keep_for_retry(parent, name, who, entry)
            attributes = entry.attributes
            if attributes is None:
                self._counts.lookup_misses += 1
                return entry
            # The cache is asked without our lock, so an eviction may come between: then the name is looked up again.
            if attributes.kind is not Kind.FILE or attributes.state == "staged" or self._cache.looked_up(entry.ino):
                return entry
        self._counts.lookup_misses += 1
        return ABSENT_ENTRY

    def getattr(self, ino: int) -> Entry:
        """Attributes of an inode; ESTALE when it is gone."""
        with self._lock:
            version = self._versions.get(ino)
            if version is not None and version.is_open_to_calls:
                return self._entries.of_version(version)
            try:
                attributes = self._entries.attributes_of_object(ino)
            except NoSuchObject:
                replaced = self._replaced.get(ino)
                if replaced is None:
                    raise
                attributes = replaced.attributes
        return self._entries.of_object(attributes, fleeting=attributes.nlink == 0)

    def readlink(self, ino: int) -> bytes:
        """A symlink's target."""
        return self._store.readlink(ino)

    def _resolve(self, parent: int, name: bytes, who: CallerIdentity) -> Entry:
        versions = self._versions.of_name(parent, name)
        if versions:
            version = self._names.visible(parent, name, who)
            if version is not None:
                return self._entries.of_version(version)
        oid = self._store.lookup(parent, name)
        if oid is None:
            return self._entries.of_nothing(fleeting=bool(versions))
        # A write-open of an object with several names made a version; this lookup, which the kernel repeats for it,
        # says which name is meant. Not one that comes later, when the repeated walk has led somewhere else.
        if self._versions.any_unbound() and self._retries.wants_version(who.caller):
            bound = self._drafting.bind(oid, parent, name, who)
            if bound is not None:
                return self._entries.of_version(bound)
        return self._entries.of_object(self._entries.attributes_of_object(oid), fleeting=bool(versions))

    def _keep_for_retry(self, parent: int, name: bytes, who: CallerIdentity, entry: Entry) -> Entry:
        """The second lookup of a walk finds what its call will be able to use."""
        attributes = entry.attributes
        retry = self._retries.of(who.caller.thread)
        if retry is None or attributes is None or attributes.kind is not Kind.FILE or is_lock_name(name):
            return entry
        if attributes.state == "staged":
            return entry
        try:
            if not retry.writes:
                self.keep_pinned(retry, entry.ino)
                return entry
            self._drafting.of_name(parent, name, who)
        except HcfsError:
            # Gone, or read-only by now: the call itself will be told.
            return entry
        return self._resolve(parent, name, who)

    def keep_pinned(self, retry: Retry, oid: int) -> None:
        """What a repeated walk named can be opened, even if somebody replaces it before. NoSuchObject when it is gone.
        Lock held."""
        retry.keep(self._store.pin(oid), verifies_at_open(self._volume, oid))

    def _dot(self, parent: int, name: bytes) -> Entry:
        ino = parent
        if name == b".." and parent != ROOT_ID:
            if self._store.attributes(parent).kind is not Kind.DIRECTORY:
                raise NoSuchObject("only directories have a parent")
            ino = self._store.parent_of(parent)
        return self.getattr(ino)
