"""Accounts: whose the blocks of staged objects are, and how many more their owner may take."""

from __future__ import annotations

from typing import Protocol

UNLIMITED = 1 << 62
"""More blocks than there are"""


class Account(Protocol):
    """The owner of staged objects. All but `make_room` are called under the store's lock, and may not wait."""

    def allowance(self) -> int:
        """Blocks that may still be taken, UNLIMITED without a quota; below 0 when a quota was lowered."""

    def charge(self, blocks: int) -> None:
        """So many blocks were taken; below 0: given back, or published."""

    def make_room(self, blocks: int) -> bool:
        """Free so many of the owner's own blocks. Called without the store's locks; may block. True: try again."""

    def refusal(self, blocks: int) -> str:
        """Why so many blocks can't be had, and what to do: one sentence."""


class Unaccounted:
    """The account of what belongs to nobody: no bound, no count."""

    def allowance(self) -> int:
        return UNLIMITED

    def charge(self, blocks: int) -> None:
        pass

    def make_room(self, blocks: int) -> bool:  # noqa: ARG002  # the signature of Account
        return False

    def refusal(self, blocks: int) -> str:
        raise AssertionError(f"{blocks} blocks were refused without a quota")


UNACCOUNTED = Unaccounted()
