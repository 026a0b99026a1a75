"""An origin reached through obstore: S3 and what speaks its protocol, or a local directory."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from hcfs.errors import UsageError
from hcfs.origin.client import Listed
from hcfs.origin.errors import NotAtOrigin, OriginChanged, OriginError, OriginRefused

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import LocalStore, S3Store

CONNECT_S = 5
SILENCE_S = 10
"""Seconds without a byte after which a request has failed."""
REQUEST_S = 60
"""Seconds for one request, which fetches a piece of an object."""

CHUNK = 256 << 10
"""Least bytes handed on at once; obstore's threads hold about as many more."""

_REASON_MAX = 400


class ObjectStoreClient:
    """OriginClient by obstore. Credentials, region and endpoint come from the environment, or from where the machine's
    platform keeps them, as obstore looks for them: none is an option of hcfs, and none is in what is raised.

    The library does no retries of its own, so that one place decides about them."""

    def __init__(self, url: str) -> None:
        """url: `s3://bucket/prefix`, `file:///directory` or an absolute path. Nothing is asked yet. UsageError without
        the library."""
        if find_spec("obstore") is None:
            raise UsageError(f"{url} needs the library obstore: install hcfs[origins]")
        self._url = url
        self._store: S3Store | LocalStore | None = None
        self._lock = threading.Lock()
        self._directory = local_directory(url)

    def list(self) -> Iterator[list[Listed]]:
        with self._told(""):
            # An absent directory would be listed as an empty one.
            if self._directory is not None and not os.path.isdir(self._directory):
                raise OriginError(f"{self._url} can't be listed: there is no such directory")
            for page in self._opened().list(chunk_size=1000):
                yield [_listed(meta) for meta in page]

    def fetch(self, listed: Listed, start: int, end: int) -> Iterator[memoryview]:
        import obstore

        options: GetOptions = {"range": (start, end)}
        if listed.etag:
            options["if_match"] = listed.etag
        with self._told(listed.key):
            result = obstore.get(self._opened(), listed.key, options=options)
            meta = result.meta
            if meta["size"] != listed.size or (listed.etag and meta["e_tag"] not in (None, listed.etag)):
                raise OriginChanged(f"{self._where(listed.key)} has changed since it was listed")
            yield memoryview(b"")
            for chunk in result.stream(min_chunk_size=CHUNK):
                yield memoryview(chunk).cast("B")
            # A server answers with one object, whole or cut off; a file may have been written meanwhile.
            if self._directory is not None and obstore.head(self._opened(), listed.key)["e_tag"] != listed.etag:
                raise OriginChanged(f"{self._where(listed.key)} has changed while it was read")

    def _opened(self) -> S3Store | LocalStore:
        from obstore.store import LocalStore, from_url

        with self._lock:
            if self._store is None:
                if self._directory is not None:
                    self._store = LocalStore(self._directory)
                else:
                    opened = from_url(
                        self._url,
                        client_options={
                            # With options of ours, the library doesn't look for this one in the environment.
                            "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true"),
                            "connect_timeout": f"{CONNECT_S}s",
                            "read_timeout": f"{SILENCE_S}s",
                            "timeout": f"{REQUEST_S}s",
                        },
                        retry_config={"max_retries": 0},
                    )
                    self._store = opened  # type: ignore[assignment]  # the URL was checked to be S3's
            return self._store  # type: ignore[return-value]  # the same

    def _where(self, key: str) -> str:
        return f"{self._url.rstrip('/')}/{key}" if key else self._url

    @contextmanager
    def _told(self, key: str) -> Iterator[None]:
        """The library's exceptions as ours."""
        from obstore import exceptions

        try:
            yield
        except OriginError:
            raise
        except FileNotFoundError as error:
            if not key:
                raise OriginError(f"{self._url}: {_reason(error)}") from None
            raise NotAtOrigin(f"{self._where(key)} isn't at the origin") from None
        except exceptions.PreconditionError:
            raise OriginChanged(f"{self._where(key)} has changed since it was listed") from None
        except (
            exceptions.PermissionDeniedError,
            exceptions.UnauthenticatedError,
            exceptions.InvalidPathError,
            exceptions.NotSupportedError,
            exceptions.UnknownConfigurationKeyError,
            ValueError,
        ) as error:
            raise OriginRefused(f"{self._where(key)}: {_reason(error)}") from None
        except (exceptions.BaseError, OSError) as error:
            raise OriginError(f"{self._where(key)}: {_reason(error)}") from None


def local_directory(url: str) -> str | None:
    """The path of an origin that is a directory of this machine; None for another."""
    if url.startswith("/"):
        return url
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else None


def _reason(error: BaseException) -> str:
    """The first line of what the library says: the rest is its own source."""
    text = (str(error).splitlines() or [""])[0].strip()
    return text[:_REASON_MAX] or type(error).__name__


def _listed(meta: Any) -> Listed:
    mtime_ns = int(meta["last_modified"].timestamp() * 1_000_000) * 1000
    return Listed(meta["path"], meta["size"], mtime_ns, meta["e_tag"] or "")
