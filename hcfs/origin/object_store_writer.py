"""What is sent to buckets, through obstore."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from hcfs.origin.connection import OriginConnection
from hcfs.origin.errors import NotAtOrigin, OriginChanged, OriginError, OriginRefused, UploadConflict
from hcfs.origin.uploader import CONFLICT, Outgoing, Uploaded

SILENCE_S = 60
REQUEST_S = 60
"""Seconds for one request, which sends at most SINGLE_MAX bytes, and as many for its answer."""

SINGLE_MAX = 16 << 20
"""Bytes of an object that is sent in one request, whose condition the origin itself checks."""

PART = 8 << 20
"""Bytes of a part of a larger one, as long as PARTS_MAX of them are enough."""
PARTS_MAX = 9_000

BODIES_MAX = 48 << 20
"""Bytes that one origin's uploads hold in memory at once, beside the pool: obstore's threads may go on with a body
after its request has failed, so none is a buffer that is used for something else later."""

KEY_MAX = 1024
"""Bytes, prefix included: S3's and Google's."""

_TOKEN = "hcfs"  # noqa: S105  # not a secret: the name of an object's metadata entry


class _Found(NamedTuple):
    """What the origin has under a key."""

    etag: str
    size: int
    token: str
    """Of whoever wrote it, where that was hcfs; else empty."""
    generation: str | None
    """By which Google names this very upload; None elsewhere."""


class ObjectStoreWriter:
    """OriginWriter by obstore."""

    conditional = True

    def __init__(self, url: str) -> None:
        """As OriginConnection's. Nothing is asked yet."""
        self._connection = OriginConnection(url, silence_s=SILENCE_S, request_s=REQUEST_S)
        self._bodies = _Bodies()

    @staticmethod
    def can_be_key(path: str, url: str) -> bool:
        """What obstore and S3 both take."""
        prefix = unquote(urlsplit(url).path).strip("/")
        return len(f"{prefix}/{path}".lstrip("/").encode()) <= KEY_MAX

    def put(self, outgoing: Outgoing, base: str | None) -> Uploaded:
        """As OriginWriter says."""
        if base is None:
            return self._send(outgoing, None)
        try:
            return self._send(outgoing, base)
        except OriginChanged:
            found = self._ours(outgoing)
        if isinstance(found, Uploaded):
            return found
        return self._send_or_conflict(outgoing, found)

    def delete(self, key: str) -> None:
        """Remove an object; nothing when there is none."""
        try:
            with self._connection.told(key):
                import obstore

                obstore.delete(self._connection.store(), key)
        except NotAtOrigin:
            pass

    def _send_or_conflict(self, outgoing: Outgoing, base: str) -> Uploaded:
        try:
            return self._send(outgoing, base)
        except OriginChanged:
            raise self._conflict(outgoing) from None

    def _conflict(self, outgoing: Outgoing) -> UploadConflict:
        return UploadConflict(f"{self._connection.where(outgoing.key)} {CONFLICT}")

    def _ours(self, outgoing: Outgoing) -> Uploaded | str:
        """The origin's content, if it is this very one; else its ETag, if this device wrote it, or "" for nothing.
        UploadConflict."""
        found = self._head(outgoing.key)
        if found is None:
            return ""
        if found.token == outgoing.token and found.size == outgoing.size:
            return Uploaded(found.etag, found.size)
        if found.token.partition(":")[0] != outgoing.token.partition(":")[0]:
            raise self._conflict(outgoing)
        return found.etag

    def _head(self, key: str) -> _Found | None:
        """What the origin has; None for nothing."""
        try:
            with self._connection.told(key):
                import obstore

                found = obstore.get(self._connection.store(), key, options={"head": True})
                meta, token = found.meta, found.attributes.get(_TOKEN, "")
                return _Found(meta["e_tag"] or "", meta["size"], str(token), meta["version"])
        except NotAtOrigin:
            return None

    def _send(self, outgoing: Outgoing, base: str | None) -> Uploaded:
        """OriginChanged when the origin doesn't have `base`."""
        if outgoing.size <= SINGLE_MAX:
            with self._bodies.holding(outgoing.size):
                return self._single(outgoing, base)
        part = max(PART, -(-outgoing.size // PARTS_MAX))
        with self._bodies.holding(3 * part):
            return self._in_parts(outgoing, base, part)

    def _single(self, outgoing: Outgoing, base: str | None) -> Uploaded:
        body, sent = bytearray(outgoing.size), 0
        for piece in outgoing.pieces():
            body[sent : sent + len(piece)] = piece
            sent += len(piece)
        self._require_length(outgoing, sent)
        mode = self._mode(outgoing.key, base)
        with self._connection.told(outgoing.key):
            import obstore

            result = obstore.put(
                self._connection.store(),
                outgoing.key,
                body,
                mode=mode,  # type: ignore[arg-type]  # a dictionary of this form is an UpdateVersion
                use_multipart=False,
                attributes=self._attributes(outgoing),
            )
        return self._etag(outgoing, result["e_tag"])

    def _mode(self, key: str, base: str | None) -> str | dict[str, str]:
        """What the library is told of the content that is to be replaced: its ETag, or for Google the generation of
        what has that ETag now. OriginChanged when nothing has."""
        if not base:
            return "overwrite" if base is None else "create"
        if not self._connection.google:
            return {"e_tag": base}
        found = self._require_base(key, base)
        if found is None or found.generation is None:
            raise OriginRefused(
                f"{self._connection.where(key)} can't be replaced: its origin doesn't say its generation"
            )
        return {"version": found.generation}

    def _in_parts(self, outgoing: Outgoing, base: str | None, part: int) -> Uploaded:
        """The condition is looked at before the first part and before the last one: the library has none for the
        request that puts parts together."""
        self._require_base(outgoing.key, base)

        def pieces() -> Iterator[bytes]:
            sent = 0
            for piece in outgoing.pieces():
                sent += len(piece)
                if sent == outgoing.size:
                    # Within a call of the library no other one may be made in the same thread.
                    with ThreadPoolExecutor(1) as asking:
                        asking.submit(self._require_base, outgoing.key, base).result()
                yield piece
            self._require_length(outgoing, sent)

        with self._connection.told(outgoing.key):
            import obstore

            result = obstore.put(
                self._connection.store(),
                outgoing.key,
                pieces(),
                use_multipart=True,
                chunk_size=part,
                max_concurrency=1,
                attributes=self._attributes(outgoing),
            )
        found = self._head(outgoing.key) if self._connection.google else None
        if found is not None and found.token == outgoing.token:
            # Of parts put together Google may say one ETag at the end, and another one from then on.
            return Uploaded(found.etag, outgoing.size)
        return self._etag(outgoing, result["e_tag"])

    def _require_base(self, key: str, base: str | None) -> _Found | None:
        """What the origin has, if its ETag is `base`, or with "" None, if it has nothing; OriginChanged otherwise. With
        None it isn't asked."""
        if base is None:
            return None
        found = self._head(key)
        if (found.etag if found else "") != base:
            raise OriginChanged(f"{self._connection.where(key)} has changed since it was listed")
        return found

    def _require_length(self, outgoing: Outgoing, sent: int) -> None:
        if sent != outgoing.size:
            raise OriginError(f"{outgoing.key}: {sent} bytes were read instead of {outgoing.size}")

    def _etag(self, outgoing: Outgoing, etag: str | None) -> Uploaded:
        """An origin whose answer has no ETag is asked for it."""
        if not etag:
            found = self._head(outgoing.key)
            etag = found.etag if found else ""
        return Uploaded(etag, outgoing.size)

    def _attributes(self, outgoing: Outgoing) -> dict[str, str]:
        return {_TOKEN: outgoing.token}


class _Bodies:
    """How many bytes of bodies are in memory."""

    def __init__(self) -> None:
        self._fewer = threading.Condition()
        self._bytes = 0

    @contextmanager
    def holding(self, nbytes: int) -> Iterator[None]:
        """So many bytes more; waits until they may be."""
        nbytes = min(nbytes, BODIES_MAX)
        with self._fewer:
            self._fewer.wait_for(lambda: self._bytes + nbytes <= BODIES_MAX)
            self._bytes += nbytes
        try:
            yield
        finally:
            with self._fewer:
                self._bytes -= nbytes
                self._fewer.notify_all()
