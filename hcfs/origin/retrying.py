"""How often an origin is asked again, and after which pauses."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from hcfs.origin.errors import (
    NotAtOrigin,
    OriginChanged,
    OriginError,
    OriginRefused,
    UploadConflict,
    WrongContent,
)

T = TypeVar("T")


@dataclass(slots=True)
class Patience:
    """Attempts that fail one after another without anything gained between them; pauses double, with jitter."""

    stop: threading.Event
    """Set when the mount ends: no pause goes on, and nothing is asked again."""
    attempts: int = 5
    pause_s: float = 0.2
    pause_max_s: float = 60.0
    failures: int = 0

    def gained(self) -> None:
        """Something came: whatever fails next is the first failure again."""
        self.failures = 0

    def insist(self, work: Callable[[], T]) -> T:
        """Do what an origin may fail, until it succeeds; raises its error where there is to be no further attempt.
        Blocks."""
        while True:
            try:
                return work()
            except OriginError as error:
                self.after(error)

    def after(self, error: OriginError) -> None:
        """Wait before the next attempt; raises the error instead where there is to be none."""
        final = isinstance(error, (NotAtOrigin, OriginChanged, OriginRefused, UploadConflict, WrongContent))
        self._pause(error, final=final)

    def after_wrong(self, error: WrongContent) -> None:
        """The same, for whoever begins the whole object anew."""
        self._pause(error, final=False)

    def _pause(self, error: OriginError, *, final: bool) -> None:
        self.failures += 1
        if final or self.failures >= self.attempts or self.stop.is_set():
            raise error
        longest = min(self.pause_max_s, self.pause_s * 2 ** (self.failures - 1))
        pause = longest * random.uniform(0.5, 1.5)  # noqa: S311  # not a secret
        if self.stop.wait(pause):
            raise error
