"""State that all operations share, and how a name is resolved for a caller."""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from hcfs.cache import Cache
from hcfs.errors import HcfsError
from hcfs.mount.answers import Caller, CallError, Entry
from hcfs.mount.faults import attempt
from hcfs.mount.handles import Handles
from hcfs.mount.kernel import KernelCaches
from hcfs.mount.lockfiles import LockFile, is_lock_name
from hcfs.mount.process import Process, process_of_caller
from hcfs.mount.repeats import Repeat, Repeats
from hcfs.mount.versions import Fate, Version, Versions
from hcfs.store import NAME_MAX, ROOT_ID, Attributes, Kind, Store

log = logging.getLogger(__name__)

DIRECTORY_ATTR_TIMEOUT = 1.0
"""Seconds. Publishing and eviction change a directory's times and links without the kernel's doing."""

REPLACED_KEPT = 4096
"""objects replaced lately whose names are remembered: an open that met one comes within milliseconds"""


@dataclass(frozen=True, slots=True)
class Replaced:
    """An object that lost its name to another while an open of it may have been under way.

    The kernel walks to an inode, asks for its attributes to check permissions, and opens it; it repeats all that once
    when the answer is ESTALE. So the first two are still answered, and only the open sends it to the new object."""

    attributes: Attributes
    parent: int
    name: bytes


class Identity:
    """A caller's process, read from /proc when it is first asked for: most operations never ask."""

    __slots__ = ("_known", "_process", "caller")

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._known = False
        self._process: Process | None = None

    @property
    def process(self) -> Process | None:
        """None when it can't be told."""
        if not self._known:
            self._process, self._known = process_of_caller(self.caller.thread), True
        return self._process


@dataclass(slots=True)
class Calls:
    """Counts of calls since the mount began."""

    lookups: int = 0
    lookup_misses: int = 0
    opens: int = 0
    abandoned: int = 0
    """Versions that were to be published and weren't: their writer was killed, or failed, or never came back."""


class Core:
    """What the parts of the filesystem share.

    `lock` guards versions, handles' versions and lock files' counts. It is taken before the store's lock and never held
    across device I/O; the cache, which takes its own lock, is called without it.
    """

    def __init__(
        self,
        store: Store,
        cache: Cache,
        kernel: KernelCaches,
        *,
        entry_timeout: float,
        staging_ttl: float = 600.0,
        read_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """entry_timeout: seconds for which the kernel may answer for committed and for absent names. staging_ttl:
        seconds for which a closed version waits for its rename."""
        self.store = store
        self.cache = cache
        self.kernel = kernel
        self.entry_timeout = entry_timeout
        self.staging_ttl = staging_ttl
        self.read_only = read_only
        self.clock = clock
        self.lock = threading.RLock()
        self.versions = Versions()
        self.handles = Handles()
        self.lock_files: dict[int, LockFile] = {}
        self.calls = Calls()
        self.repeats = Repeats()
        self._replaced: OrderedDict[int, Replaced] = OrderedDict()
        self.device: int | None = None
        """st_dev of this filesystem's files, once it is mounted."""
        self.pid_zero_seen = False
        """A client in another pid namespace wrote: its handles don't share versions."""
        self._background = ThreadPoolExecutor(max_workers=4, thread_name_prefix="hcfs-close")

    @contextmanager
    def repeatable(self, caller: Caller, *, writes: bool) -> Iterator[Repeat | None]:
        """A call that the kernel repeats when it is answered with ESTALE: what was kept for it, if this is the
        repetition. Lock held."""
        repeat = self.repeats.of(caller.thread)
        try:
            yield repeat
        except HcfsError as error:
            if error.errno == errno.ESTALE:
                self.repeats.begin(caller.thread, writes, self.clock())
            raise
        if repeat is not None:
            self.repeats.end(caller.thread)

    def note_replaced(self, attributes: Attributes | None, parent: int, name: bytes) -> None:
        """An object, None for none, lost a name to another. Lock held."""
        if attributes is not None:
            self._replaced[attributes.id] = Replaced(attributes._replace(nlink=0), parent, name)
            if len(self._replaced) > REPLACED_KEPT:
                self._replaced.popitem(last=False)

    def replaced(self, oid: int) -> Replaced | None:
        """What an object was that lost a name to another lately. Lock held."""
        return self._replaced.get(oid)

    def attributes_at(self, parent: int, name: bytes) -> Attributes | None:
        """Of the committed object under a name, if there is one. Lock held."""
        oid = self.store.lookup(parent, name)
        return None if oid is None else self.store.attributes(oid)

    def in_background(self, work: Callable[[], None]) -> None:
        """Run what a call that may not wait leaves to do."""
        self._background.submit(attempt, "background work", work)

    def close(self) -> None:
        """Wait for what runs in the background; no operation may follow."""
        self._background.shutdown(wait=True)

    # --- names -------------------------------------------------------------------------------------------------------

    def check_name(self, name: bytes) -> None:
        """ENAMETOOLONG for a name that is longer than f_namemax says."""
        if len(name) > NAME_MAX:
            raise CallError(errno.ENAMETOOLONG)

    def is_staging_name(self, parent: int, name: bytes) -> bool:
        """Whether a version of this name waits for a rename instead of being published at the last close."""
        if is_lock_name(name):
            return False
        namespace = self.store.namespace_of(parent)
        return namespace != 0 and self.cache.namespaces.options(namespace).is_staging_name(name)

    def own_version(self, parent: int, name: bytes, who: Identity) -> Version | None:
        """The caller's own version of a name, open or closed. Lock held."""
        for version in reversed(self.versions.of_name(parent, name)):
            if version.owner is None:
                # The version that an open from another pid namespace is about to be repeated for.
                if not version.opened and who.process is None:
                    return version
            elif version.owner == who.process:
                return version
        return None

    def visible_version(self, parent: int, name: bytes, who: Identity) -> Version | None:
        """The version that the name means to the caller: its own, else the most recently closed one that waits under
        a staging name. None: the committed object, if any. Lock held.

        A version that an open was promised is there for that open alone: it may never come, and the name mean something
        else long since, when the object was renamed between the caller's lookup and its open."""
        versions = self.versions.of_name(parent, name)
        if not versions:
            return None
        own = self.own_version(parent, name, who)
        if own is not None and (own.opened or self.sent_back(who)):
            return own
        waiting = [version for version in versions if version.waiting]
        return max(waiting, key=lambda version: version.closed_at or 0.0, default=None)

    def sent_back(self, who: Identity) -> bool:
        """Whether the caller repeats a walk, for a call that needs a version; also when that can't be told. Lock
        held."""
        repeat = self.repeats.of(who.caller.thread)
        return who.caller.thread <= 0 or (repeat is not None and repeat.writes)

    # --- attributes --------------------------------------------------------------------------------------------------

    def version_attributes(self, version: Version) -> Attributes:
        """A version's attributes as its writer sees them. Lock held."""
        attributes = version.staged.attributes()
        return attributes._replace(nlink=0) if version.fate is Fate.NAMELESS else attributes

    def object_attributes(self, oid: int) -> Attributes:
        """A committed object's attributes, or a lock file's present ones. NoSuchObject (ESTALE) when it is gone."""
        lock_file = self.lock_files.get(oid)
        if lock_file is not None:
            return lock_file.attributes()
        attributes = self.store.attributes(oid)
        if attributes.kind is Kind.SYMLINK:
            return attributes._replace(size=len(self.store.readlink(oid)))
        return attributes

    def version_entry(self, version: Version) -> Entry:
        """The answer that names a version: the kernel keeps nothing of it."""
        return Entry(version.ino, self.version_attributes(version), 0.0, 0.0)

    def created_entry(self, version: Version) -> Entry:
        """The answer that makes a version: the kernel's permission check of the same open needs no second question.
        Only the writer's process reaches the inode yet, and its own writes end what the kernel knows of it."""
        return Entry(version.ino, self.version_attributes(version), 0.0, DIRECTORY_ATTR_TIMEOUT)

    def object_entry(self, attributes: Attributes, fleeting: bool) -> Entry:
        """The answer that names a committed object. fleeting: its name has versions, so others may be answered
        something else."""
        if fleeting:
            return Entry(attributes.id, attributes, 0.0, 0.0)
        return Entry(attributes.id, attributes, self.entry_timeout, self.attr_timeout(attributes))

    def attr_timeout(self, attributes: Attributes) -> float:
        """Seconds for which the kernel may keep attributes of a committed object."""
        if attributes.kind is Kind.DIRECTORY:
            return min(DIRECTORY_ATTR_TIMEOUT, self.entry_timeout)
        return 0.0 if attributes.id in self.lock_files else self.entry_timeout

    def refuse_root_file(self, parent: int) -> None:
        """EPERM for files outside namespaces."""
        if parent == ROOT_ID:
            raise CallError(errno.EPERM)
