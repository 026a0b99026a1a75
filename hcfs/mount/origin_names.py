"""The namespaces of which origins are in charge: nothing in them is changed by anybody but hcfs, unless their write
policy says so, and an origin comes and goes only in an empty one."""

from __future__ import annotations

import errno
import logging
import os

from hcfs.cache.options import checked
from hcfs.mount.answers import Blocking, Caller, CallError, Entry
from hcfs.mount.attributes import Changes
from hcfs.mount.namespace_origin import Origin
from hcfs.mount.opening import Created
from hcfs.mount.origins import Origins
from hcfs.mount.remote import Remote
from hcfs.mount.versions import Fate
from hcfs.mount.xattrs import OWN, Xattrs
from hcfs.store.errors import NoSuchObject

log = logging.getLogger(__name__)


class OriginNames(Xattrs):
    """Which inodes are an origin's, and the calls that are refused there. All from memory."""

    origins: Origins | None = None
    """Set once the mount is made; None on one that is read-only, which shows what it has."""

    # --- which names are an origin's ---------------------------------------------------------------------------------

    def origin_of(self, ino: int) -> Origin | None:
        """The origin of an inode's namespace; None for local-only ones and for the root."""
        if not self.origins:
            return None
        remote = self.origins.remote(ino)
        try:
            return self.origins.of(self.store.namespace_of(ino) if remote is None else remote.namespace)
        except NoSuchObject:
            return None

    def _remote(self, ino: int) -> Remote | None:
        return self.origins.remote(ino) if self.origins else None

    def is_refused(self, ino: int) -> bool:
        """Whether an inode is of a namespace whose origin the mount refuses."""
        origin = self.origin_of(ino)
        return origin is not None and origin.not_allowed is not None

    def refuse_read_only(self, *inodes: int) -> None:
        """EROFS for a change of what an origin has, unless its write policy allows it; the namespace's own directory
        isn't part of it."""
        if any(origin is not None and origin.uploader is None for origin in map(self.origin_of, inodes)):
            raise CallError(errno.EROFS)

    # --- options -----------------------------------------------------------------------------------------------------

    def setxattr(self, ino: int, name: bytes, value: bytes, caller: Caller) -> None:
        """As Xattrs.setxattr; ENOTEMPTY for an origin's coming, change or end in a namespace that holds files: none of
        them may come to be another kind of file than it was stored as. EACCES for an origin that the mount doesn't
        allow."""
        self._refuse_below(ino)
        self._require_allowed(ino, name, value, caller)
        if self.origins is not None and name == OWN + b"origin" and value != b"none" and self._is_namespace(ino):
            self.origins.require_library(value.decode(errors="surrogateescape"))
        with self._origin_may_change(ino, name, value):
            super().setxattr(ino, name, value, caller)
        self._note_options(ino, name)

    def removexattr(self, ino: int, name: bytes, caller: Caller) -> None:
        self._refuse_below(ino)
        with self._origin_may_change(ino, name, b"none"):
            super().removexattr(ino, name, caller)
        self._note_options(ino, name)

    def _require_allowed(self, ino: int, name: bytes, value: bytes, caller: Caller) -> None:
        if name != OWN + b"origin" or self.origins is None:
            return
        if self.versions.get(ino) is not None or not self._is_namespace(ino):
            return
        with self.lock:
            self._require_option(ino, None, name, caller)
        url = checked("origin", value.decode(errors="surrogateescape"))
        refusal = None if url is None else self.origins.allowed.refusal(url)
        if refusal is not None:
            log.info("namespace %s gets no origin: %s", os.fsdecode(self._namespace_name(ino)), refusal)
            raise CallError(errno.EACCES, refusal)

    def _origin_may_change(self, ino: int, name: bytes, value: bytes) -> OriginChange:
        options = (OWN + b"origin", OWN + b"write_policy")
        # A version has no object yet.
        if name not in options or self.versions.get(ino) is not None or not self._is_namespace(ino):
            return OriginChange(self, 0)
        if name == OWN + b"origin" and value != self._option_value(ino, "origin"):
            return OriginChange(self, ino)
        closes = name == OWN + b"write_policy" and value in (b"read-only", b"none")
        return OriginChange(self, ino if closes else 0, unsynced=True)

    def holds_unsynced(self, namespace: int) -> bool:
        """Whether a namespace holds what its origin doesn't have, or somebody writes there. Lock held."""
        return bool(self.cache.unsynced_bytes(namespace)) or self._writes_in(namespace)

    def _writes_in(self, namespace: int) -> bool:
        return any(
            version.staged.namespace == namespace and version.fate in (Fate.STAGED, Fate.NAMELESS)
            for version in self.versions
        )

    def holds_files(self, namespace: int) -> bool:
        """Whether anything is stored in a namespace, or on its way there. Lock held."""
        fetches = self.origins is not None and self.origins.ingests.under_way(namespace)
        return bool(self.cache.namespaces.usage(namespace).objects or fetches) or self._writes_in(namespace)

    def _note_options(self, ino: int, name: bytes) -> None:
        if self.origins is not None and name.startswith(OWN) and self._is_namespace(ino):
            self.origins.update(ino)

    # --- changes are refused -----------------------------------------------------------------------------------------

    def setattr(self, ino: int, changes: Changes, number: int | None, caller: Caller) -> Entry | Blocking[Entry]:
        self._refuse_below(ino)
        return super().setattr(ino, changes, number, caller)

    def _refuse_below(self, ino: int) -> None:
        """EROFS for all but the namespace's own directory, whose mode, owner and options may change."""
        if self._remote(ino) is not None or (self.origins and self.origins.of(ino) is None):
            self.refuse_read_only(ino)

    def create(self, parent: int, name: bytes, mode: int, flags: int, caller: Caller) -> Created:
        self.refuse_read_only(parent)
        return super().create(parent, name, mode, flags, caller)

    def mkdir(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        self.refuse_read_only(parent)
        return super().mkdir(parent, name, mode, caller)

    def symlink(self, parent: int, name: bytes, target: bytes, caller: Caller) -> Entry:
        self.refuse_read_only(parent)
        return super().symlink(parent, name, target, caller)

    def mknod(self, parent: int, name: bytes, mode: int, caller: Caller) -> Entry:
        self.refuse_read_only(parent)
        return super().mknod(parent, name, mode, caller)

    def unlink(self, parent: int, name: bytes, caller: Caller) -> Blocking[None] | None:
        self.refuse_read_only(parent)
        return super().unlink(parent, name, caller)

    def rmdir(self, parent: int, name: bytes) -> None:
        self.refuse_read_only(parent)
        super().rmdir(parent, name)

    def link(self, ino: int, parent: int, name: bytes, caller: Caller) -> Entry | Blocking[Entry]:
        """EXDEV between namespaces, as everywhere: no second name carries an object over."""
        version = self.versions.get(ino)
        if self.origin_of(ino if version is None else version.staged.namespace) is not self.origin_of(parent):
            raise CallError(errno.EXDEV)
        self.refuse_read_only(parent)
        return super().link(ino, parent, name, caller)

    def rename(
        self, old_parent: int, old_name: bytes, parent: int, name: bytes, flags: int, caller: Caller
    ) -> Blocking[None] | None:
        if self.origin_of(old_parent) is not self.origin_of(parent):
            raise CallError(errno.EXDEV)
        self.refuse_read_only(old_parent)
        return super().rename(old_parent, old_name, parent, name, flags, caller)


class OriginChange:
    """Holds the filesystem's lock while an origin or its write policy is set, so that nothing is stored meanwhile."""

    def __init__(self, filesystem: OriginNames, namespace: int, *, unsynced: bool = False) -> None:
        """namespace: 0 where nothing is to be held. unsynced: only what the origin doesn't have stands in the way."""
        self._fs = filesystem
        self._namespace = namespace
        self._unsynced = unsynced

    def __enter__(self) -> None:
        if not self._namespace:
            return
        self._fs.lock.acquire()
        try:
            if self._unsynced:
                refusal = errno.EBUSY if self._fs.holds_unsynced(self._namespace) else 0
            else:
                refusal = errno.ENOTEMPTY if self._fs.holds_files(self._namespace) else 0
            if refusal:
                raise CallError(refusal)
        except BaseException:
            self._fs.lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        if self._namespace:
            self._fs.lock.release()
