"""Extended attributes: the users' own, what hcfs says about an object, and the options of a namespace."""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from hcfs.errors import UsageError
from hcfs.filesystem.calls import Blocking, Caller, CallError
from hcfs.filesystem.entries import Entries
from hcfs.filesystem.versions.version import Fate, Version, Versions
from hcfs.filesystem.volume import Volume
from hcfs.options.namespace_options import OPTIONS, row_of
from hcfs.options.setters import Setter
from hcfs.store import ROOT_ID, Attributes, Kind

USER = b"user."
OWN = b"user.hcfs."
EXTENTS_SHOWN = 256
"""An attribute's value has at most 64 KiB; a file of more extents says how many more."""

FACTS = (b"state", b"extents", b"generation", b"namespace", b"origin", b"last_access", b"crc32c")
"""What hcfs says of a committed file."""

VERSION_FACTS = (b"state", b"namespace", b"origin")


class OriginFacts(Protocol):
    """What a file's state is, and where it comes from. Both are asked of committed files. Memory only."""

    def state(self, attributes: Attributes) -> bytes:
        """As `user.hcfs.state` says it."""

    def origin(self, attributes: Attributes) -> bytes:
        """Its URL, or `none`."""


class LocalFacts:
    """OriginFacts where there is no origin."""

    def state(self, attributes: Attributes) -> bytes:
        return b"local-only" if attributes.state == "committed" else attributes.state.encode()

    def origin(self, attributes: Attributes) -> bytes:
        return b"none"


LOCAL_FACTS = LocalFacts()


class OptionChanges(Protocol):
    """Who has to agree to a change of a namespace's options, and hears of it."""

    def changing(self, namespace: int, option: str, value: bytes) -> AbstractContextManager[None]:
        """Around a change. Refuses it as CallError."""

    def changed(self, namespace: int) -> None:
        """It is done. No lock is held."""


class AnyOption:
    """OptionChanges where nobody minds."""

    def changing(self, namespace: int, option: str, value: bytes) -> AbstractContextManager[None]:
        return nullcontext()

    def changed(self, namespace: int) -> None:
        """Nothing follows."""


class Xattrs:
    """`user.*` is stored, but for `user.hcfs.*`; other prefixes don't exist here, as on any plain FUSE filesystem."""

    def __init__(self, volume: Volume, versions: Versions, entries: Entries) -> None:
        self._store = volume.store
        self._lock = volume.lock
        self._namespaces = volume.cache.namespaces
        self._versions = versions
        self._entries = entries
        self.option_changes: OptionChanges = AnyOption()

    def getxattr(self, ino: int, name: bytes, facts: OriginFacts = LOCAL_FACTS) -> bytes | Blocking[bytes]:
        """ENODATA when there is none. Blocking for what is computed from checksums on the medium."""
        if not name.startswith(USER):
            raise CallError(errno.ENODATA)
        with self._lock:
            version = self._version(ino)
            if name.startswith(OWN):
                return self._own_value(ino, version, name.removeprefix(OWN), facts)
            value = self._store.get_xattr(ino, name) if version is None else version.staged.get_xattr(name)
        if value is None:
            raise CallError(errno.ENODATA)
        return value

    def listxattr(self, ino: int) -> list[bytes]:
        """Names, those that hcfs computes included."""
        with self._lock:
            version = self._version(ino)
            stored = self._store.list_xattrs(ino) if version is None else version.staged.list_xattrs()
            own = self._own_names(ino, version)
        return [name for name in stored if name.startswith(USER) and not name.startswith(OWN)] + own

    def setxattr(self, ino: int, name: bytes, value: bytes, caller: Caller) -> None:
        """Set a user's attribute, or an option of a namespace (by root or the owner of the mount's root; what
        concerns an origin, by root or the daemon's own user)."""
        self._change(ino, name, value, caller)

    def removexattr(self, ino: int, name: bytes, caller: Caller) -> None:
        """Remove a user's attribute (ENODATA when there is none), or set an option back to its default."""
        self._change(ino, name, None, caller)

    def _change(self, ino: int, name: bytes, value: bytes | None, caller: Caller) -> None:
        if not name.startswith(USER):
            raise CallError(errno.ENOTSUP)
        if name.startswith(OWN):
            self._change_option(ino, name.removeprefix(OWN), value, caller)
            return
        with self._lock:
            version = self._version(ino)
            if version is not None:
                if value is None:
                    version.staged.remove_xattr(name)
                else:
                    version.staged.set_xattr(name, value)
                version.xattr_changes[name] = value
            elif value is None:
                self._store.remove_xattr(ino, name)
            else:
                self._store.set_xattr(ino, name, value)

    def _change_option(self, ino: int, key: bytes, value: bytes | None, caller: Caller) -> None:
        with self._lock:
            option, text = key.decode(errors="backslashreplace"), None
            if value is not None:
                text = value.decode(errors="surrogateescape")
            self._require_option(ino, self._version(ino), option, text, caller)
        with self.option_changes.changing(ino, option, b"none" if value is None else value):
            self._namespaces.set_option(ino, option, text)
        self.option_changes.changed(ino)

    def _require_option(self, ino: int, version: Version | None, option: str, text: str | None, caller: Caller) -> None:
        """ENOTSUP where nothing can be set: mv and cp -a try to set whatever the source has, and pass that over in
        silence. EPERM for what isn't an option of a namespace, or isn't the caller's to set."""
        if version is not None or not self._is_namespace(ino):
            raise CallError(errno.ENOTSUP)
        try:
            row = row_of(option)
        except UsageError as error:
            raise CallError(errno.EPERM, str(error)) from None
        administrators = {Setter.OWNER: self._store.attributes(ROOT_ID).uid, Setter.DAEMON: os.geteuid()}
        for setter in row.setters(text):
            if caller.uid not in (0, administrators[setter]):
                raise CallError(errno.EPERM, setter.value)

    def _version(self, ino: int) -> Version | None:
        version = self._versions.get(ino)
        if version is None or not version.is_open_to_calls:
            return None
        if version.fate is Fate.ABANDONED:
            raise CallError(errno.EIO)
        return version

    def _is_namespace(self, ino: int) -> bool:
        return ino != ROOT_ID and self._store.namespace_of(ino) == ino

    # --- what hcfs says ----------------------------------------------------------------------------------------------

    def _own_names(self, ino: int, version: Version | None) -> list[bytes]:
        if version is not None:
            return [OWN + name for name in VERSION_FACTS]
        kind = self._entries.attributes_of_object(ino).kind
        if kind is Kind.FILE:
            return [OWN + name for name in FACTS]
        if kind is Kind.DIRECTORY and self._is_namespace(ino):
            return [OWN + option.encode() for option in OPTIONS]
        return []

    def _own_value(self, ino: int, version: Version | None, key: bytes, facts: OriginFacts) -> bytes | Blocking[bytes]:
        if OWN + key not in self._own_names(ino, version):
            raise CallError(errno.ENODATA)
        if version is not None:
            return {b"state": b"staged", b"namespace": self.namespace_name(version.staged.namespace)}.get(key, b"none")
        attributes = self._entries.attributes_of_object(ino)
        if attributes.kind is Kind.DIRECTORY:
            return self.option_value(ino, key.decode())
        if key == b"crc32c":
            return Blocking(lambda: b"%08x" % self._store.content.content_crc32c(ino))
        return self._fact(key, attributes, facts)

    def _fact(self, key: bytes, attributes: Attributes, facts: OriginFacts) -> bytes:
        match key:
            case b"state":
                return facts.state(attributes)
            case b"origin":
                return facts.origin(attributes)
            case b"extents":
                return self._extents(attributes.id)
            case b"generation":
                return b"%d" % attributes.generation
            case b"namespace":
                return self.namespace_name(self._store.namespace_of(attributes.id))
            case _:  # last_access, in seconds since 1970
                return b"%d.%09d" % divmod(attributes.last_access_ns, 1_000_000_000)

    def option_value(self, namespace: int, option: str) -> bytes:
        """A namespace's option, as its attribute shows it."""
        value = getattr(self._namespaces.options(namespace), option)
        return OPTIONS[option].shown(value).encode(errors="surrogateescape")

    def namespace_name(self, namespace: int) -> bytes:
        """Of a namespace's id; empty for 0."""
        return self._store.path_of(namespace) if namespace else b""

    def _extents(self, oid: int) -> bytes:
        """`LOGICAL+COUNT@BLOCK` for each extent, in blocks of 4 KiB."""
        extents = self._store.content.extents_of(oid)
        shown = " ".join(f"{each.logical}+{each.count}@{each.block}" for each in extents[:EXTENTS_SHOWN])
        more = len(extents) - EXTENTS_SHOWN
        return (shown + (f" and {more} more" if more > 0 else "")).encode()
