"""What is called with the store's lock held: how it is said, and how it is checked.

A docstring says "Lock held.", and the decorator of that name checks it where the environment has HCFS_CHECK_LOCKS, as
the tests do. Elsewhere it leaves the method as it is, so it costs nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

CHECK_LOCKS = bool(os.environ.get("HCFS_CHECK_LOCKS"))


class Guarded(Protocol):
    """Whatever has methods that need the store's lock."""

    @property
    def lock(self) -> threading.RLock: ...


Self = TypeVar("Self", bound=Guarded)
P = ParamSpec("P")
T = TypeVar("T")


def lock_held(method: Callable[Concatenate[Self, P], T]) -> Callable[Concatenate[Self, P], T]:
    """Marks a method whose caller holds the store's lock. AssertionError from a call without it, where locks are
    checked."""
    if not CHECK_LOCKS:
        return method

    @wraps(method)
    def checked(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        require_held(self.lock)
        return method(self, *args, **kwargs)

    return checked


def require_held(lock: threading.RLock) -> None:
    """AssertionError when the calling thread doesn't hold the lock."""
    try:
        # There is no public way to ask; this notifies nobody, and looks first whether it may.
        threading.Condition(lock).notify(0)
    except RuntimeError:
        raise AssertionError("this is called with the store's lock held, and it isn't held") from None
