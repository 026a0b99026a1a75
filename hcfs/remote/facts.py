"""What `user.hcfs.state` and `user.hcfs.origin` say of files of namespaces with an origin."""

from __future__ import annotations

import os

from hcfs.cache import ETAG, SYNC, SyncRecord
from hcfs.filesystem.operations.xattrs import OWN
from hcfs.filesystem.volume import Volume
from hcfs.remote.listing.remote import Remote
from hcfs.remote.uploading.uploads import Uploads
from hcfs.store import Attributes


class RemoteFacts:
    """OriginFacts, from what is stored with the object."""

    def __init__(self, volume: Volume, uploads: Uploads | None) -> None:
        """uploads: None on a mount that has no way to an origin, and shows what it has."""
        self._store = volume.store
        self._namespaces = volume.cache.namespaces
        self._uploads = uploads

    def state(self, attributes: Attributes) -> bytes:
        if attributes.state != "committed":
            return attributes.state.encode()
        value = self._store.get_xattr(attributes.id, SYNC)
        if value is not None:
            found = None if self._uploads is None else self._uploads.get(attributes.id)
            if found is not None:
                return found.state.encode()
            return b"dirty" if SyncRecord.decode(value).reason is None else b"sync-failed"
        return b"local-only" if self._store.get_xattr(attributes.id, ETAG) is None else b"clean"

    def origin(self, attributes: Attributes) -> bytes:
        oid = attributes.id
        if self._store.get_xattr(oid, SYNC) is None and self._store.get_xattr(oid, ETAG) is None:
            return b"none"
        return self._url(self._store.namespace_of(oid), self._store.path_of(oid).partition(b"/")[2])

    def of_remote(self, remote: Remote) -> dict[bytes, bytes]:
        """Of what isn't on the device, by the attributes' names."""
        return {
            OWN + b"state": b"remote",
            OWN + b"namespace": self._store.path_of(remote.namespace),
            OWN + b"origin": self._url(remote.namespace, remote.listed.key.encode(errors="surrogateescape")),
        }

    def _url(self, namespace: int, key: bytes) -> bytes:
        url = self._namespaces.options(namespace).origin
        return b"none" if url is None else os.fsencode(url.rstrip("/")) + b"/" + key
