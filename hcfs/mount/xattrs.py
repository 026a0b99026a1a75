"""Extended attributes: the users' own, what hcfs says about an object, and the options of a namespace."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from hcfs.cache import ABOUT_ORIGIN, OPTIONS
from hcfs.mount.answers import Blocking, Caller, CallError
from hcfs.mount.listing import Listing
from hcfs.mount.versions import Fate, Version
from hcfs.store import ROOT_ID, Attributes, Kind

USER = b"user."
OWN = b"user.hcfs."
EXTENTS_SHOWN = 256
"""An attribute's value has at most 64 KiB; a file of more extents says how many more."""


class Xattrs(Listing):
    """`user.*` is stored, but for `user.hcfs.*`; other prefixes don't exist here, as on any plain FUSE filesystem."""

    def getxattr(self, ino: int, name: bytes) -> bytes | Blocking[bytes]:
        """ENODATA when there is none. Blocking for what is computed from checksums on the medium."""
        if not name.startswith(USER):
            raise CallError(errno.ENODATA)
        with self.lock:
            version = self._version(ino)
            if name.startswith(OWN):
                return self._own_value(ino, version, name.removeprefix(OWN))
            value = self.store.get_xattr(ino, name) if version is None else version.staged.get_xattr(name)
        if value is None:
            raise CallError(errno.ENODATA)
        return value

    def listxattr(self, ino: int) -> list[bytes]:
        """Names, those that hcfs computes included."""
        with self.lock:
            version = self._version(ino)
            stored = self.store.list_xattrs(ino) if version is None else version.staged.list_xattrs()
            own = self._own_names(ino, version)
        return [name for name in stored if name.startswith(USER) and not name.startswith(OWN)] + own

    def setxattr(self, ino: int, name: bytes, value: bytes, caller: Caller) -> None:
        """Set a user's attribute, or an option of a namespace (by root or the owner of the mount's root; what
        concerns an origin, by root or the daemon's own user)."""
        self._refuse_foreign(name)
        with self.lock:
            version = self._version(ino)
            if not name.startswith(OWN):
                if version is None:
                    self.store.set_xattr(ino, name, value)
                else:
                    version.staged.set_xattr(name, value)
                    version.xattr_changes[name] = value
                return
            self._require_option(ino, version, name, caller)
        self.cache.namespaces.set_option(ino, _option(name), value.decode(errors="surrogateescape"))

    def removexattr(self, ino: int, name: bytes, caller: Caller) -> None:
        """Remove a user's attribute (ENODATA when there is none), or set an option back to its default."""
        self._refuse_foreign(name)
        with self.lock:
            version = self._version(ino)
            if not name.startswith(OWN):
                if version is None:
                    self.store.remove_xattr(ino, name)
                else:
                    version.staged.remove_xattr(name)
                    version.xattr_changes[name] = None
                return
            self._require_option(ino, version, name, caller)
        self.cache.namespaces.set_option(ino, _option(name), None)

    def _version(self, ino: int) -> Version | None:
        version = self.versions.get(ino)
        if version is None or version.fate is Fate.PUBLISHED:
            return None
        if version.fate is Fate.ABANDONED:
            raise CallError(errno.EIO)
        return version

    def _refuse_foreign(self, name: bytes) -> None:
        if not name.startswith(USER):
            raise CallError(errno.ENOTSUP)

    def _is_namespace(self, ino: int) -> bool:
        return ino != ROOT_ID and self.store.namespace_of(ino) == ino

    def _require_option(self, ino: int, version: Version | None, name: bytes, caller: Caller) -> None:
        """ENOTSUP where nothing can be set: mv and cp -a try to set whatever the source has, and pass that over in
        silence. EPERM for what isn't an option of a namespace, or isn't the caller's to set."""
        if version is not None or not self._is_namespace(ino):
            raise CallError(errno.ENOTSUP)
        if _option(name) not in OPTIONS:
            raise CallError(errno.EPERM)
        # What an origin is read and written with are the daemon's own rights.
        administrator = os.geteuid() if _option(name) in ABOUT_ORIGIN else self.store.attributes(ROOT_ID).uid
        if caller.uid not in (0, administrator):
            raise CallError(errno.EPERM)

    # --- what hcfs says ----------------------------------------------------------------------------------------------

    def _own_names(self, ino: int, version: Version | None) -> list[bytes]:
        if version is not None:
            return [OWN + name for name in (b"state", b"namespace", b"origin")]
        kind = self.object_attributes(ino).kind
        if kind is Kind.FILE:
            return [OWN + name for name in (*_FACTS, b"crc32c")]
        if kind is Kind.DIRECTORY and self._is_namespace(ino):
            return [OWN + option.encode() for option in OPTIONS]
        return []

    def _own_value(self, ino: int, version: Version | None, key: bytes) -> bytes | Blocking[bytes]:
        if OWN + key not in self._own_names(ino, version):
            raise CallError(errno.ENODATA)
        if version is not None:
            return {b"state": b"staged", b"namespace": self._namespace_name(version.staged.namespace)}.get(key, b"none")
        attributes = self.object_attributes(ino)
        if attributes.kind is Kind.DIRECTORY:
            return self._option_value(ino, key.decode())
        if key == b"crc32c":
            return Blocking(lambda: b"%08x" % self.store.content_crc32c(ino))
        return _FACTS[key](self, attributes)

    def _option_value(self, namespace: int, option: str) -> bytes:
        value = getattr(self.cache.namespaces.options(namespace), option)
        if value is None:
            return b"none"
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        return text.encode(errors="surrogateescape")

    def _namespace_name(self, namespace: int) -> bytes:
        return self.store.path_of(namespace) if namespace else b""

    def _state(self, attributes: Attributes) -> bytes:
        return b"local-only" if attributes.state == "committed" else attributes.state.encode()

    def _extents(self, attributes: Attributes) -> bytes:
        """`LOGICAL+COUNT@BLOCK` for each extent, in blocks of 4 KiB."""
        extents = self.store.extents_of(attributes.id)
        shown = " ".join(f"{each.logical}+{each.count}@{each.block}" for each in extents[:EXTENTS_SHOWN])
        more = len(extents) - EXTENTS_SHOWN
        return (shown + (f" and {more} more" if more > 0 else "")).encode()

    def _origin(self, attributes: Attributes) -> bytes:  # noqa: ARG002  # files of namespaces with an origin have one
        return b"none"

    def _last_access(self, attributes: Attributes) -> bytes:
        """Seconds since 1970."""
        return b"%d.%09d" % divmod(attributes.last_access_ns, 1_000_000_000)


_FACTS: dict[bytes, Callable[[Xattrs, Attributes], bytes]] = {
    b"state": lambda fs, attributes: fs._state(attributes),
    b"extents": Xattrs._extents,
    b"generation": lambda _, attributes: b"%d" % attributes.generation,
    b"namespace": lambda fs, attributes: fs._namespace_name(fs.store.namespace_of(attributes.id)),
    b"origin": lambda fs, attributes: fs._origin(attributes),
    b"last_access": Xattrs._last_access,
}


def _option(name: bytes) -> str:
    return name.removeprefix(OWN).decode(errors="backslashreplace")
