"""The one way to a network: obstore's client of S3 and what speaks its protocol, and of Google Cloud Storage."""

from __future__ import annotations

import os
import re
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
    from obstore.store import ClientConfig, GCSStore, S3Store

CONNECT_S = 5
_REASON_MAX = 400


class Connection:
    """A client of one origin, made when it is first needed. Credentials, region and endpoint come from the environment,
    or from where the machine's platform keeps them, as obstore looks for them: none is an option of hcfs, and none is
    in what is raised.

    The library does no retries of its own, so that one place decides about them."""

    def __init__(self, url: str, *, silence_s: int, request_s: int) -> None:
        """url: `s3://bucket/prefix` or `gs://bucket/prefix`. silence_s: seconds without a byte of an answer after which
        a request has failed. request_s: seconds for a whole request. UsageError without the library."""
        if find_spec("obstore") is None:
            raise UsageError(f"{url} needs the library obstore: install hcfs[origins]")
        self.url = url
        self.google = urlsplit(url).scheme == "gs"
        """Whether the origin is Google Cloud Storage."""
        self._silence_s = silence_s
        self._request_s = request_s
        self._store: S3Store | GCSStore | None = None
        self._lock = threading.Lock()

    def store(self) -> S3Store | GCSStore:
        """The library's client."""
        from obstore.store import from_url

        with self._lock:
            if self._store is None:
                allow_http = "GOOGLE_ALLOW_HTTP" if self.google else "AWS_ALLOW_HTTP"
                options: ClientConfig = {
                    # With options of ours, the library doesn't look for this one in the environment.
                    "allow_http": os.environ.get(allow_http, "").lower() in ("1", "true"),
                    "connect_timeout": f"{CONNECT_S}s",
                    "read_timeout": f"{self._silence_s}s",
                    "timeout": f"{self._request_s}s",
                }
                authority = None if self.google else _authority()
                if authority is not None:
                    options["root_certificate"] = authority
                opened = from_url(self.url, client_options=options, retry_config={"max_retries": 0})
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
                raise OriginError(f"{self.url}: {said_of(error)}") from None
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
            raise OriginRefused(f"{self.where(key)}: {said_of(error)}") from None
        except (exceptions.BaseError, OSError) as error:
            raise OriginError(f"{self.where(key)}: {said_of(error)}") from None


def local_directory(url: str) -> str | None:
    """The path of an origin that is a directory of this machine; None for another."""
    if url.startswith("/"):
        return url
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else None


def _authority() -> bytes | None:
    """The certificates that AWS_CA_BUNDLE names, which the library doesn't look for: trusted beside the system's or
    those of SSL_CERT_FILE. None where it names none; OriginRefused where it can't be read."""
    path = os.environ.get("AWS_CA_BUNDLE", "").strip()
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise OriginRefused(f"AWS_CA_BUNDLE={path} can't be read: {error.strerror}") from None


def said_of(error: BaseException) -> str:
    """What the library says, in one line: behind it is its own source. What it doesn't say is added."""
    said, _, source = str(error).partition("\n\nDebug source:")
    text = printable(said.strip())[:_REASON_MAX] or type(error).__name__
    certificate = _CERTIFICATE.search(source)
    if certificate:
        return text + f"; the server's certificate isn't accepted: {certificate[1]}{_of_certificate(certificate[1])}"
    if "builder error" in text:
        text += _unreadable()
    return text + next((hint for words, hint in _HINTS.items() if words in text), "")


def _of_certificate(problem: str) -> str:
    """What to do about it."""
    if problem != "UnknownIssuer":
        return ""
    return (
        f", so it is from an authority that isn't known here{_unreadable()}; name its certificate "
        "with SSL_CERT_FILE, or with AWS_CA_BUNDLE for s3://, in the daemon's environment"
    )


def _unreadable() -> str:
    """What stands in the way of all certificates."""
    path = os.environ.get("SSL_CERT_FILE")
    return "" if not path or os.access(path, os.R_OK) else f"; SSL_CERT_FILE={path} can't be read"


_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*([A-Za-z]+)")
"""How the library's source names what is wrong with a certificate, and the sentence doesn't."""

_HINTS = {
    "builder error": "; an endpoint with http:// needs AWS_ALLOW_HTTP=true, for gs:// GOOGLE_ALLOW_HTTP=true",
    "http://169.254.169.254/": "; the daemon's environment has no credentials, and this machine has no role",
    "invalid path": "; rename or remove it at the origin",
}
"""By what the library says: the cause or the remedy that it leaves out."""
