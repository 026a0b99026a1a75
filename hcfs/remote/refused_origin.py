"""The client of an origin that the mount refuses: nothing in it reaches a network or a directory."""

from __future__ import annotations

from collections.abc import Iterator

from hcfs.origin import Listed, OriginRefused


class RefusedClient:
    """An OriginClient whose every answer is the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def list(self) -> Iterator[list[Listed]]:
        """OriginRefused."""
        raise OriginRefused(self._reason)

    def fetch(self, listed: Listed, start: int, end: int) -> Iterator[memoryview]:  # whatever it is
        """OriginRefused."""
        raise OriginRefused(self._reason)
