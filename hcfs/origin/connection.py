"""The one way to an origin: obstore's client of S3 and what speaks its protocol, of Google Cloud Storage, or of a local
directory."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from hcfs.errors import UsageError
from hcfs.origin.errors import NotAtOrigin, OriginChanged, OriginError, OriginRefused
from hcfs.printable import printable

if TYPE_CHECKING:
    from obstore.store import GCSStore, LocalStore, S3Store

CONNECT_S = 5
_REASON_MAX = 400


class Connection:
    """A client of one origin, made when it is first needed. Credentials, region and endpoint come from the environment,
    or from where the machine's platform keeps them, as obstore looks for them: none is an option of hcfs, and none is
    in what is raised.

    The library does no retries of its own, so that one place decides about them."""

    def __init__(self, url: str, *, silence_s: int, request_s: int) -> None:
        """url: `s3://bucket/prefix`, `gs://bucket/prefix`, `file:///directory` or an absolute path. silence_s: seconds
        without a byte of an answer after which a request has failed. request_s: seconds for a whole request. UsageError
        without the library.
        """
        if find_spec("obstore") is None:
            raise UsageError(f"{url} needs the library obstore: install hcfs[origins]")
        self.url = url
        self.directory = local_directory(url)
        """The path of an origin that is a directory of this machine."""
        self.google = urlsplit(url).scheme == "gs"
        """Whether the origin is Google Cloud Storage."""
        self._silence_s = silence_s
        self._request_s = request_s
        self._store: S3Store | GCSStore | LocalStore | None = None
        self._lock = threading.Lock()

    def store(self) -> S3Store | GCSStore | LocalStore:
        """The library's client."""
        from obstore.store import LocalStore, from_url

        with self._lock:
            if self._store is None:
                if self.directory is not None:
                    self._store = LocalStore(self.directory)
                else:
                    allow_http = "GOOGLE_ALLOW_HTTP" if self.google else "AWS_ALLOW_HTTP"
                    opened = from_url(
                        self.url,
                        client_options={
                            # With options of ours, the library doesn't look for this one in the environment.
                            "allow_http": os.environ.get(allow_http, "").lower() in ("1", "true"),
                            "connect_timeout": f"{CONNECT_S}s",
                            "read_timeout": f"{self._silence_s}s",
                            "timeout": f"{self._request_s}s",
                        },
                        retry_config={"max_retries": 0},
                    )
                    self._store = opened  # type: ignore[assignment]  # the URL was checked to be of S3 or GCS
            return self._store  # type: ignore[return-value]  # the same

    def where(self, key: str) -> str:
        """An object's URL, or with "" the origin's."""
        return f"{self.url.rstrip('/')}/{key}" if key else self.url

    @contextmanager
    def told(self, key: str) -> Iterator[None]:
        """The library's exceptions as ours."""
        from obstore import exceptions

        try:
            yield
        except OriginError:
            raise
        except FileNotFoundError as error:
            if not key:
                raise OriginError(f"{self.url}: {_reason(error)}") from None
            raise NotAtOrigin(f"{self.where(key)} isn't at the origin") from None
        except (exceptions.PreconditionError, exceptions.AlreadyExistsError):
            raise OriginChanged(f"{self.where(key)} has changed since it was listed") from None
        except (
            exceptions.PermissionDeniedError,
            exceptions.UnauthenticatedError,
            exceptions.InvalidPathError,
            exceptions.NotSupportedError,
            exceptions.UnknownConfigurationKeyError,
            ValueError,
        ) as error:
            raise OriginRefused(f"{self.where(key)}: {_reason(error)}") from None
        except (exceptions.BaseError, OSError) as error:
            raise OriginError(f"{self.where(key)}: {_reason(error)}") from None


def local_directory(url: str) -> str | None:
    """The path of an origin that is a directory of this machine; None for another."""
    if url.startswith("/"):
        return url
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else None


def _reason(error: BaseException) -> str:
    """What the library says, in one line: behind it is its own source. What it doesn't say is added."""
    said = str(error).partition("\n\nDebug source:")[0].strip()
    text = printable(said)[:_REASON_MAX] or type(error).__name__
    return text + next((hint for words, hint in _HINTS.items() if words in text), "")


_HINTS = {
    "builder error": "; an endpoint with http:// needs AWS_ALLOW_HTTP=true, for gs:// GOOGLE_ALLOW_HTTP=true",
    "http://169.254.169.254/": "; the daemon's environment has no credentials, and this machine has no role",
    "invalid path": "; rename or remove it at the origin",
    "File system loop": "; remove that symlink",
}
"""By what the library says: the cause or the remedy that it leaves out."""
