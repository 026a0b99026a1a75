"""When an origin, or its write policy, may come, change or go."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from hcfs.filesystem.calls import CallError
from hcfs.filesystem.operations.xattrs import Xattrs
from hcfs.filesystem.versions.version import Fate, Versions
from hcfs.filesystem.volume import Volume
from hcfs.options.namespace_options import checked
from hcfs.remote.origins import Origins

log = logging.getLogger(__name__)

_REASONS = {
    errno.ENOTEMPTY: "the namespace holds files, which keep the kind that they were stored as; evict or remove them "
    "first, or make another namespace",
    errno.EBUSY: "it holds files that its origin doesn't have yet, or that are being written; wait for them with "
    "'hcfs sync --wait', or resolve what has failed there",
}


class OriginOptions:
    """OptionChanges: an origin comes and goes only in an empty namespace, and nothing unsynced loses its way out."""

    def __init__(self, volume: Volume, versions: Versions, xattrs: Xattrs, origins: Origins) -> None:
        self._lock = volume.lock
        self._cache = volume.cache
        self._versions = versions
        self._xattrs = xattrs
        self._origins = origins

    @contextmanager
    def changing(self, namespace: int, option: str, value: bytes) -> Iterator[None]:
        """ENOTEMPTY for an origin's coming, change or end in a namespace that holds files: none of them may come to be
        another kind of file than it was stored as. EBUSY for the end of a write policy while something isn't uploaded.
        EACCES for an origin that the mount doesn't allow. Nothing is stored meanwhile."""
        if option == "origin":
            self._require_usable(namespace, value)
        refusal = None
        if option == "origin" and value != self._xattrs.option_value(namespace, "origin"):
            refusal = errno.ENOTEMPTY
        elif option == "write_policy" and value in (b"read-only", b"none"):
            refusal = errno.EBUSY
        if refusal is None:
            yield
            return
        with self._lock:
            stands = self._holds_files if refusal == errno.ENOTEMPTY else self._holds_unsynced
            if stands(namespace):
                raise CallError(refusal, _REASONS[refusal])
            yield

    def _require_usable(self, namespace: int, value: bytes) -> None:
        """EACCES for an origin that the mount doesn't allow, EINVAL for one that it couldn't use."""
        url = checked("origin", value.decode(errors="surrogateescape"))
        if url is None:
            return
        refusal = self._origins.allowed.refusal(url)
        if refusal is not None:
            where = os.fsdecode(self._xattrs.namespace_name(namespace))
            log.info("namespace %s gets no origin: %s", where, refusal)
            raise CallError(errno.EACCES, refusal)
        self._origins.require_library(url)

    def changed(self, namespace: int) -> None:
        self._origins.update(namespace)

    def _holds_unsynced(self, namespace: int) -> bool:
        """Whether a namespace holds what its origin doesn't have, or somebody writes there. Lock held."""
        return bool(self._cache.unsynced_bytes(namespace)) or self._writes_in(namespace)

    def _holds_files(self, namespace: int) -> bool:
        """Whether anything is stored in a namespace, or on its way there. Lock held."""
        fetches = self._origins.ingests.under_way(namespace)
        return bool(self._cache.namespaces.usage(namespace).objects or fetches) or self._writes_in(namespace)

    def _writes_in(self, namespace: int) -> bool:
        return any(
            version.staged.namespace == namespace and version.fate in (Fate.STAGED, Fate.NAMELESS)
            for version in self._versions
        )
