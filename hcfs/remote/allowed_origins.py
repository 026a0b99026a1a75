"""Which origins a mount allows: an image says what it wants, and whoever mounts it says what it gets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from hcfs.options.schemes import local_path, scheme_of, spelled_for_options
from hcfs.printable import printable

OPTION = "allow_origin"


@dataclass(frozen=True, slots=True)
class _Place:
    """A URL taken apart; what is on this machine has no bucket."""

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
        """prefixes: as the option keeps them."""
        self._spelled = [_place(prefix) for prefix in prefixes]
        self._prefixes = prefixes

    def refusal(self, origin: str) -> str | None:
        """Why an origin isn't allowed, with the option that would allow it; None when it is. For an allowed directory
        blocks for a look at the links on its way."""
        place = _place(origin)
        if not any(allowed.holds(place) for allowed in self._spelled):
            wanted = spelled_for_options(origin)
            return f"the mount doesn't allow its origin {printable(origin)}: mount with -o {OPTION}={wanted}"
        path = local_path(origin)
        if path is None:
            return None
        real = os.path.realpath(path)
        allowed_paths = filter(None, map(local_path, self._prefixes))
        if any(_at(os.path.realpath(allowed)).holds(_at(real)) for allowed in allowed_paths):
            return None
        return (
            f"its origin {printable(origin)} leads to {printable(real)}, which the mount doesn't allow: mount with "
            f"-o {OPTION}={spelled_for_options(real)} too"
        )


def _place(url: str) -> _Place:
    scheme, path, parts = scheme_of(url), local_path(url), urlsplit(url)
    name = "" if scheme is None else scheme.name
    if path is not None:
        return _at(path, name)
    return _Place(name, parts.netloc, tuple(filter(None, unquote(parts.path).split("/"))))


def _at(path: str, scheme: str = "") -> _Place:
    return _Place(scheme, "", tuple(filter(None, os.path.normpath(path).split("/"))))
