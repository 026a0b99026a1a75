"""The kinds of origins, a row each. Everything that knows a kind of origin, or its URLs, has it from here."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from hcfs.options.setters import Setter


@dataclass(frozen=True, slots=True)
class Scheme:
    """A row."""

    name: str
    """What stands before the colon of a URL."""
    title: str
    forms: tuple[str, ...]
    """As errors and help show its URLs."""
    example: str
    problem: Callable[[SplitResult], str]
    """Why a URL of this scheme, taken apart, can't be an origin; "" where it can."""
    client: str
    """`module:name` of its OriginClient, which is called with the URL. It is imported when it is first needed."""
    writer: str | None = None
    """The same of its OriginWriter. None: nothing is ever sent there, so that no other write policy than read-only can
    be set."""
    set_by: Setter = Setter.DAEMON
    """Who may give such an origin to a namespace, if that is also the option's setter."""
    library: str | None = None
    """What must be installed to use it..."""
    extra: str | None = None
    """...and the extra of hcfs that brings it."""
    variables: str = ""
    """What the names of the environment's variables begin with that lead there."""
    plain: bool = False
    """An absolute path alone stands for one of its URLs. Of one row."""
    local: bool = False
    """Its URLs name paths of this machine. Then symlinks count, where a mount allows origins."""

    @property
    def prefix(self) -> str:
        """The beginning of its URLs."""
        return f"{self.name}://"

    @property
    def missing(self) -> str | None:
        """What to install, where its library isn't; None where it is."""
        if self.library is None or find_spec(self.library) is not None:
            return None
        return f"it needs the library {self.library}: install hcfs[{self.extra}]"


def _problem_of_bucket(parts: SplitResult) -> str:
    if not parts.netloc:
        return "it names no bucket"
    prefix = unquote(parts.path)
    inside = prefix.strip("/")
    # The client would make another prefix of it.
    if prefix != prefix.strip() or (inside and not {"", ".", ".."}.isdisjoint(inside.split("/"))):
        return "its prefix begins or ends with a blank, or has an empty part, . or .."
    return ""


def _problem_of_path(parts: SplitResult) -> str:
    return "" if not parts.netloc and parts.path.startswith("/") else "the directory must be absolute"


SCHEMES = (
    Scheme(
        name="s3",
        title="S3, and what speaks its protocol",
        forms=("s3://BUCKET/PREFIX",),
        example="s3://bucket/models",
        problem=_problem_of_bucket,
        client="hcfs.origin.object_store:ObjectStoreClient",
        writer="hcfs.origin.object_store_writer:ObjectStoreWriter",
        library="obstore",
        extra="origins",
        variables="AWS_",
    ),
    Scheme(
        name="gs",
        title="Google Cloud Storage",
        forms=("gs://BUCKET/PREFIX",),
        example="gs://bucket/models",
        problem=_problem_of_bucket,
        client="hcfs.origin.object_store:ObjectStoreClient",
        writer="hcfs.origin.object_store_writer:ObjectStoreWriter",
        library="obstore",
        extra="origins",
        variables="GOOGLE_",
    ),
    Scheme(
        name="file",
        title="a directory of this machine",
        forms=("file:///DIRECTORY", "/DIRECTORY"),
        example="/srv/models",
        problem=_problem_of_path,
        client="hcfs.origin.directory:DirectoryClient",
        writer="hcfs.origin.directory_writer:DirectoryWriter",
        plain=True,
        local=True,
    ),
)

(_PLAIN,) = [scheme for scheme in SCHEMES if scheme.plain]

_FORMS = [form for scheme in SCHEMES for form in scheme.forms]
FORMS = f"{', '.join(_FORMS[:-1])} or {_FORMS[-1]}"
"""Every form of an origin, as errors offer them."""


def scheme_of(url: str) -> Scheme | None:
    """The row of an origin's URL, or of an absolute path; None for what no origin is."""
    name = _PLAIN.name if url.startswith("/") else url.partition(":")[0].lower()
    return next((scheme for scheme in SCHEMES if scheme.name == name), None)


def problem_of(url: str) -> str:
    """Why a text can't be an origin; "" where it can. The sentence goes on with FORMS."""
    try:
        parts = urlsplit(url)
        url.encode()
    except ValueError:  # as of brackets that no host is in
        return "it isn't a URL, nor UTF-8"
    scheme = scheme_of(url)
    if any(character in url for character in "\0\n?#"):
        return "it has a character that no origin has"
    if "@" in parts.netloc:
        return "credentials aren't part of it: they come from the daemon's environment"
    if scheme is None:
        return "it is none of those that this version of hcfs reads"
    return scheme.problem(parts)


def local_path(url: str) -> str | None:
    """The path of an origin that is on this machine; None for another."""
    scheme = scheme_of(url)
    if scheme is None or not scheme.local:
        return None
    return url if url.startswith("/") else unquote(urlsplit(url).path)


def spelled_for_options(url: str) -> str:
    """An origin's URL as it can be given in an option: a comma or a blank would end it there, or in fstab."""
    if not set(url) & set(", \t\"'\\") and url.isprintable():
        return url
    if url.startswith("/"):
        return _PLAIN.prefix + quote(os.fsencode(url))
    return quote(os.fsencode(url), safe=":/%~@+=&;!$*()[]")


def load(path: str) -> Any:
    """What `module:name` stands for."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
