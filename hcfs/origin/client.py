"""What hcfs asks of an origin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from hcfs.origin.access import Access


class Listed(NamedTuple):
    """An object as the origin lists it."""

    key: str
    """Below the origin's prefix, parts separated by `/`."""
    size: int
    """Bytes."""
    mtime_ns: int
    """Since 1970."""
    etag: str
    """What the origin calls this content, quotes included; empty where it has no name for it."""
    access: Access | None = None
    """Owner, group and mode; None where the origin has none."""
    refused: str = ""
    """Why nothing can be had under this key, though something is there; then nothing else of this is known."""

    @property
    def is_directory(self) -> bool:
        """The key ends in a slash: it is an empty folder's mark, or with `access` a directory, which is shown when
        something is in it."""
        return self.key.endswith("/")


class OriginClient(Protocol):
    """Reads an origin. Thread-safe; every method blocks, at most for its time limits. Raises OriginError."""

    def list(self) -> Iterator[list[Listed]]:
        """All objects below the prefix, page by page. Of a key that comes again what comes last counts."""

    def fetch(self, listed: Listed, start: int, end: int) -> Iterator[memoryview]:
        """Bytes [start, end) of just the content that was listed, in pieces, in order; perhaps fewer, when the
        connection ends. The first piece is empty: the origin has answered, and has this content. OriginChanged when
        there is other content by now, NotAtOrigin when there is none."""
