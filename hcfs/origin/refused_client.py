"""The client of an origin that can't be used, or that the mount refuses: it reaches neither a network nor a file."""

from __future__ import annotations

from typing import NoReturn

from hcfs.origin.client import Listed
from hcfs.origin.errors import OriginRefused


class RefusedClient:
    """An OriginClient whose every answer is the reason."""

    def __init__(self, problem: str) -> None:
        self.problem = problem

    def list(self) -> NoReturn:
        """OriginRefused."""
        raise OriginRefused(self.problem)

    def fetch(self, listed: Listed, start: int, end: int) -> NoReturn:  # noqa: ARG002  # whatever it is
        """OriginRefused."""
        raise OriginRefused(self.problem)
