"""The kinds of namespaces that have an origin, each with its place and its policy; and how a mount gets them."""

from __future__ import annotations

from typing import NamedTuple

from hcfs.filesystem.filesystem import Filesystem
from hcfs.filesystem.places.place import Place
from hcfs.filesystem.versions.policy import VersionPolicy
from hcfs.remote.allowed_origins import AllowedOrigins
from hcfs.remote.facts import RemoteFacts
from hcfs.remote.namespace_origin import Origin
from hcfs.remote.offline_namespace import OfflineNamespace
from hcfs.remote.origin_namespace import OriginNamespace
from hcfs.remote.origin_options import OriginOptions
from hcfs.remote.origins import Origins
from hcfs.remote.read_only_policy import ReadOnlyPolicy
from hcfs.remote.refused_namespace import RefusedNamespace
from hcfs.remote.remote_damage import RemoteDamage
from hcfs.remote.remote_files import RemoteFiles
from hcfs.remote.remote_listing import RemoteLister
from hcfs.remote.remote_xattrs import RemoteXattrs
from hcfs.remote.syncing.dirty_publishing import DirtyPublishing
from hcfs.remote.syncing.sync_names import SyncNames
from hcfs.remote.syncing.synced_namespace import SyncedNamespace
from hcfs.remote.syncing.write_through import WriteThrough
from hcfs.store import ROOT_ID
from hcfs.store.errors import NoSuchObject


class NamespaceKind(NamedTuple):
    """One row."""

    place: Place
    policy: VersionPolicy


class RemoteKinds:
    """Namespaces with an origin, on a mount that has a way there."""

    def __init__(self, filesystem: Filesystem, origins: Origins) -> None:
        volume, parts = filesystem.volume, filesystem.parts
        self._origins = origins
        files = RemoteFiles(volume, origins, parts.names, parts.entries, parts.opening, parts.handles)
        names = SyncNames(volume, parts.names, origins)
        lister = RemoteLister(volume, parts.versions, parts.listing, origins, files)
        xattrs = RemoteXattrs(parts.xattrs, origins, files, RemoteFacts(volume, origins.uploads))
        damage = RemoteDamage(volume, origins)
        write_through = WriteThrough(
            volume, parts.versions, parts.publisher, parts.paths, parts.local_closing, names, origins
        )
        synced = SyncedNamespace(
            volume,
            parts.local,
            parts.lookup,
            parts.listing,
            parts.versions,
            parts.names,
            parts.retries,
            parts.drafting,
            parts.publisher,
            origins,
            files,
            lister,
            xattrs,
            names,
            write_through,
        )
        origin = OriginNamespace(parts.local, parts.listing, lister, xattrs, parts.versions, origins, files)
        refused = RefusedNamespace(parts.local, origin, files)
        self.refused = NamespaceKind(refused, ReadOnlyPolicy(parts.local_closing, damage))
        self.read_only = NamespaceKind(origin, ReadOnlyPolicy(parts.local_closing, damage))
        self.synced = NamespaceKind(synced, DirtyPublishing(volume, names, origins, write_through, damage))

    def _of(self, origin: Origin | None) -> NamespaceKind | None:
        if origin is None:
            return None
        if origin.not_allowed is not None:
            return self.refused
        return self.read_only if origin.uploader is None else self.synced

    def place(self, ino: int) -> Place | None:
        """For Places."""
        kind = self._of(self._origins.of_inode(ino)) if self._origins else None
        return None if kind is None else kind.place

    def policy(self, namespace: int) -> VersionPolicy | None:
        """For Policies."""
        kind = self._of(self._origins.of(namespace)) if self._origins else None
        return None if kind is None else kind.policy


class OfflineKind:
    """The same on a mount that has none."""

    def __init__(self, filesystem: Filesystem) -> None:
        volume, parts = filesystem.volume, filesystem.parts
        self._store = volume.store
        self._namespaces = volume.cache.namespaces
        self.kind = NamespaceKind(
            OfflineNamespace(parts.local, parts.xattrs, RemoteFacts(volume, None)),
            ReadOnlyPolicy(parts.local_closing, RemoteDamage(volume, None)),
        )

    def _is_one(self, namespace: int) -> bool:
        return namespace not in (0, ROOT_ID) and self._namespaces.options(namespace).origin is not None

    def place(self, ino: int) -> Place | None:
        """For Places."""
        try:
            return self.kind.place if self._is_one(self._store.namespace_of(ino)) else None
        except NoSuchObject:
            return None

    def policy(self, namespace: int) -> VersionPolicy | None:
        """For Policies."""
        try:
            return self.kind.policy if self._is_one(namespace) else None
        except NoSuchObject:
            return None


def add_origins(filesystem: Filesystem, *, upload_attempts: int, allowed: AllowedOrigins) -> Origins:
    """Give a filesystem its namespaces with origins. upload_attempts: failures in a row after which an upload in the
    background is given up. allowed: origins that may be used; a namespace with another one is served as far as the
    device has it, and changed by nobody. The caller closes what is returned."""
    parts = filesystem.parts
    origins = Origins(
        filesystem.volume,
        parts.versions,
        parts.replaced,
        parts.reading,
        upload_attempts=upload_attempts,
        allowed=allowed,
    )
    kinds = RemoteKinds(filesystem, origins)
    parts.places.find, parts.policies.find = kinds.place, kinds.policy
    parts.xattrs.option_changes = OriginOptions(filesystem.volume, parts.versions, parts.xattrs, origins)
    return origins


def show_offline(filesystem: Filesystem) -> None:
    """Let a filesystem that has no way to origins show what it has of their files."""
    kind = OfflineKind(filesystem)
    filesystem.parts.places.find, filesystem.parts.policies.find = kind.place, kind.policy
