"""Listing and fetching through obstore."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hcfs.origin.client import Listed
from hcfs.origin.connection import Connection
from hcfs.origin.errors import OriginChanged, OriginError

if TYPE_CHECKING:
    from obstore import GetOptions

SILENCE_S = 10
"""Seconds without a byte after which a request has failed."""
REQUEST_S = 60
"""Seconds for one request, which fetches a piece of an object."""

CHUNK = 256 << 10
"""Least bytes handed on at once; obstore's threads hold about as many more."""


class ObjectStoreClient:
    """OriginClient by obstore."""

    def __init__(self, url: str) -> None:
        """As Connection's. Nothing is asked yet."""
        self._connection = Connection(url, silence_s=SILENCE_S, request_s=REQUEST_S)

    def list(self) -> Iterator[list[Listed]]:
        connection = self._connection
        with connection.told(""):
            # An absent directory would be listed as an empty one.
            if connection.directory is not None and not os.path.isdir(connection.directory):
                raise OriginError(f"{connection.url} can't be listed: there is no such directory")
            for page in connection.store().list(chunk_size=1000):
                yield [_listed(meta, quoted=connection.directory is None) for meta in page]

    def fetch(self, listed: Listed, start: int, end: int) -> Iterator[memoryview]:
        import obstore

        connection = self._connection
        options: GetOptions = {"range": (start, end)}
        if listed.etag:
            options["if_match"] = listed.etag
        with connection.told(listed.key):
            result = obstore.get(connection.store(), listed.key, options=options)
            meta = result.meta
            if meta["size"] != listed.size or (listed.etag and meta["e_tag"] not in (None, listed.etag)):
                raise OriginChanged(f"{connection.where(listed.key)} has changed since it was listed")
            yield memoryview(b"")
            for chunk in result.stream(min_chunk_size=CHUNK):
                yield memoryview(chunk).cast("B")
            # A server answers with one object, whole or cut off; a file may have been written meanwhile.
            if connection.directory is not None:
                now = obstore.head(connection.store(), listed.key)["e_tag"]
                if now != listed.etag:
                    raise OriginChanged(f"{connection.where(listed.key)} has changed while it was read")


def _listed(meta: Any, *, quoted: bool) -> Listed:
    """quoted: an ETag is in quotes, as in the header of a fetch's answer, to be compared with that: some servers list
    it without them."""
    mtime_ns = int(meta["last_modified"].timestamp() * 1_000_000) * 1000
    etag = meta["e_tag"] or ""
    if quoted and etag and not etag.endswith('"'):
        etag = f'"{etag}"'
    return Listed(meta["path"], meta["size"], mtime_ns, etag)
