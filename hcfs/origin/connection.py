"""The one way to a network: obstore's client of S3 and what speaks its protocol, and of Google Cloud Storage."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hcfs.errors import HcfsError
from hcfs.options.schemes import Scheme, scheme_of
from hcfs.origin.environment import problem_of_environment
from hcfs.origin.errors import NotAtOrigin, OriginChanged, OriginError, OriginRefused
from hcfs.printable import printable

if TYPE_CHECKING:
    from obstore.store import ClientConfig, GCSStore, S3Store

log = logging.getLogger(__name__)

GOOGLE = "GOOGLE_"
"""The variables of Google Cloud Storage, which differs from S3 in how a content is named."""

CONNECT_S = 5
_REASON_MAX = 400


class OriginConnection:
    """A client of one origin, made when it is first needed. Credentials, region and endpoint come from the environment,
    or from where the machine's platform keeps them, as obstore looks for them: none is an option of hcfs, and none is
    in what is raised.

    The library does no retries of its own, so that one place decides about them.

    Whatever it raises leaves here as an OriginError: its panics are no Exceptions, and would end whoever asked."""

    def __init__(self, url: str, *, silence_s: int, request_s: int) -> None:
        """url: of a bucket, and a prefix in it. silence_s: seconds without a byte of an answer after which a request
        has failed. request_s: seconds for a whole request. What can't be used is kept, too: `problem` says why, and so
        does each request."""
        self.url = url
        self._scheme = _scheme(url)
        self.google = self._scheme.variables == GOOGLE
        """Whether the origin is Google Cloud Storage."""
        self._silence_s = silence_s
        self._request_s = request_s
        self._store: S3Store | GCSStore | None = None
        self._lock = threading.Lock()

    @property
    def problem(self) -> str | None:
        """Why nothing can be asked, as far as that can be told without asking; None where it can be tried."""
        found = self._scheme.missing or problem_of_environment(self._scheme.variables)
        return None if found is None else f"{self.url}: {found}"

    def store(self) -> S3Store | GCSStore:
        """The library's client. OriginRefused where there can be none."""
        with self._lock:
            if self._store is None:
                problem = self.problem
                if problem is not None:
                    raise OriginRefused(problem)
                from obstore.store import from_url

                allow_http = f"{self._scheme.variables}ALLOW_HTTP"
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
        """The library's exceptions as ours, whatever their class. HcfsErrors, and the end of a generator that uses
        this, pass as they are."""
        try:
            yield
        except (GeneratorExit, HcfsError):
            raise
        except BaseException as error:
            raise self._ours(error, key) from None

    def _ours(self, error: BaseException, key: str) -> OriginError:
        if "obstore" not in sys.modules:
            return self._unexpected(error, key)
        from obstore import exceptions

        where = self.where(key)
        if isinstance(error, FileNotFoundError):
            return NotAtOrigin(f"{where} isn't at the origin") if key else OriginError(f"{self.url}: {said_of(error)}")
        if isinstance(error, (exceptions.PreconditionError, exceptions.AlreadyExistsError)):
            return OriginChanged(f"{where} has changed since it was listed")
        final = (
            exceptions.PermissionDeniedError,
            exceptions.UnauthenticatedError,
            exceptions.InvalidPathError,
            exceptions.NotSupportedError,
            exceptions.UnknownConfigurationKeyError,
            ValueError,
        )
        if isinstance(error, final):
            return OriginRefused(f"{where}: {said_of(error)}")
        if isinstance(error, (exceptions.BaseError, OSError)):
            return OriginError(f"{where}: {said_of(error)}")
        return self._unexpected(error, key)

    def _unexpected(self, error: BaseException, key: str) -> OriginError:
        """For a panic of the library, or a bug. The client isn't used again: who knows in which state it is."""
        self._store = None
        log.error("%s: what reaches origins failed unexpectedly", self.where(key), exc_info=error)
        text = f"{self.where(key)}: obstore failed unexpectedly ({type(error).__name__}: {said_of(error)})"
        kind = OriginError if isinstance(error, MemoryError) else OriginRefused
        return kind(f"{text}; the daemon's log has the details")


def _scheme(url: str) -> Scheme:
    found = scheme_of(url)
    if found is None:
        raise OriginRefused(f"{url} is no bucket")
    return found


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
        "with SSL_CERT_FILE, or with AWS_CA_BUNDLE for S3, in the daemon's environment"
    )


def _unreadable() -> str:
    """What stands in the way of all certificates."""
    path = os.environ.get("SSL_CERT_FILE")
    return "" if not path or os.access(path, os.R_OK) else f"; SSL_CERT_FILE={path} can't be read"


_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*([A-Za-z]+)")
"""How the library's source names what is wrong with a certificate, and the sentence doesn't."""

_HINTS = {
    "builder error": "; an endpoint with http:// needs AWS_ALLOW_HTTP=true, for Google GOOGLE_ALLOW_HTTP=true",
    "http://169.254.169.254/": "; the daemon's environment has no credentials, and this machine has no role",
    "invalid path": "; rename or remove it at the origin",
}
"""By what the library says: the cause or the remedy that it leaves out."""
