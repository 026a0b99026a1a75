"""Which origins a mount allows: an image says what it wants, and whoever mounts it says what it gets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from hcfs.cache.options import checked
from hcfs.errors import UsageError
from hcfs.origin.connection import local_directory

OPTION = "allow_origin"


@dataclass(frozen=True, slots=True)
class _Place:
    """A URL taken apart; a directory has no bucket."""

    scheme: str
    bucket: str
    parts: tuple[str, ...]

    def holds(self, other: _Place) -> bool:
        """Whether the other one is this, or below it."""
        same = self.scheme == other.scheme and self.bucket in ("", other.bucket)
        return same and other.parts[: len(self.parts)] == self.parts


class AllowedOrigins:
    """The prefixes of a mount's option; none allows nothing.

    A directory is looked at twice: as its path is spelled, without `..`, so that no image makes the daemon look at
    paths that nobody named; and as what symlinks make of it, on both sides, so that none leads out of what is
    allowed."""

    def __init__(self, prefixes: Sequence[str]) -> None:
        """prefixes: as `checked_prefix` answers them."""
        self._spelled = [_place(prefix) for prefix in prefixes]
        self._prefixes = prefixes

    def refusal(self, origin: str) -> str | None:
        """Why an origin isn't allowed, with the option that would allow it; None when it is. For an allowed directory
        blocks for a look at the links on its way."""
        place = _place(origin)
        if not any(allowed.holds(place) for allowed in self._spelled):
            return f"the mount doesn't allow its origin {_shown(origin)}: mount with -o {OPTION}={_value(origin)}"
        directory = local_directory(origin)
        if directory is None:
            return None
        real = os.path.realpath(directory)
        allowed_directories = filter(None, map(local_directory, self._prefixes))
        if any(_directory(os.path.realpath(allowed)).holds(_directory(real)) for allowed in allowed_directories):
            return None
        return (
            f"its origin {_shown(origin)} leads to {_shown(real)}, which the mount doesn't allow: mount with "
            f"-o {OPTION}={_value(real)} too"
        )


def checked_prefix(value: object) -> str:
    """A prefix as it is kept. UsageError for what no origin begins with, and for the root directory, which names
    none."""
    text = str(value)
    if text in ("s3://", "gs://"):
        return text
    try:
        checked("origin", text)
    except UsageError as error:
        reason = str(error).partition("can't be set: ")[2].partition("; give ")[0]
        raise _refused(value, reason) from None
    if text == "none":
        raise _refused(value, "without the option no origin is allowed")
    directory = local_directory(text)
    if directory is not None and not _directory(directory).parts:
        raise _refused(value, "a directory must be named")
    return text


def _refused(value: object, reason: str) -> UsageError:
    return UsageError(
        f"{OPTION}={value} can't be: {reason}; give s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, file:///DIRECTORY or "
        "/DIRECTORY"
    )


def _place(url: str) -> _Place:
    directory = local_directory(url)
    if directory is not None:
        return _directory(directory)
    parts = urlsplit(url)
    return _Place(parts.scheme, parts.netloc, tuple(filter(None, unquote(parts.path).split("/"))))


def _directory(path: str) -> _Place:
    return _Place("file", "", tuple(filter(None, os.path.normpath(path).split("/"))))


def _value(url: str) -> str:
    """As it can be given in the option: a comma or a blank would end it there, or in fstab."""
    if not set(url) & set(", \t\"'\\") and url.isprintable():
        return url
    directory = local_directory(url)
    if directory is not None:
        return "file://" + quote(os.fsencode(directory))
    return quote(os.fsencode(url), safe=":/%~@+=&;!$*()[]")


def _shown(text: str) -> str:
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
