"""Walks that the kernel repeats: ESTALE makes it look a path up anew, once, and a second one goes to the program.

What the repeated lookup names may be replaced, too, before the call comes that it was made for. So whoever was sent
back is remembered by its thread, and what it finds the second time is kept for it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from hcfs.errors import HcfsError
from hcfs.filesystem.calls import Caller
from hcfs.store import Pin

LIFE = 2.0
"""Seconds: the kernel repeats a walk at once, or its process has died, or the call was one that isn't repeated."""


class Retry:
    """One call that was answered with ESTALE."""

    __slots__ = ("pin", "until", "verify", "writes")

    def __init__(self, writes: bool, until: float) -> None:
        self.writes = writes
        """It needs a version, and not the object as it is."""
        self.until = until
        self.pin: Pin | None = None
        """Of the object that the repeated lookup named."""
        self.verify = False
        """The pinned object is to be verified before its open returns."""

    def keep(self, pin: Pin, verify: bool) -> None:
        """Keep an object for the call, instead of one that an earlier lookup of the same walk named."""
        self.let_go()
        self.pin, self.verify = pin, verify

    def take(self, oid: int) -> Pin | None:
        """The pin, if it is this object's; the caller releases it from now on."""
        pin = self.pin
        if pin is None or pin.oid != oid:
            return None
        self.pin = None
        return pin

    def let_go(self) -> None:
        """Release the pin."""
        if self.pin is not None:
            self.pin.release()
            self.pin = None


class EstaleRetries:
    """Calls that were sent back, by calling thread. The filesystem's lock guards it. Empty nearly always."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_thread: dict[int, Retry] = {}

    def __bool__(self) -> bool:
        return bool(self._by_thread)

    def of(self, thread: int) -> Retry | None:
        """What is kept for a thread's repeated call."""
        return self._by_thread.get(thread)

    def refused(self, error: HcfsError, thread: int, *, writes: bool) -> None:
        """A call has failed. Where that is ESTALE, the kernel repeats it. writes: it needs a version, and not the
        object as it is."""
        if error.errno == errno.ESTALE:
            self.end(thread)
            if thread > 0:  # threads that can't be told apart have none
                self._by_thread[thread] = Retry(writes, self._clock() + LIFE)

    def end(self, thread: int) -> None:
        """The call was answered."""
        if self._by_thread:
            retry = self._by_thread.pop(thread, None)
            if retry is not None:
                retry.let_go()

    def expire(self, now: float) -> None:
        """Forget calls that were never repeated."""
        for thread in [thread for thread, retry in self._by_thread.items() if retry.until < now]:
            self.end(thread)

    def wants_version(self, caller: Caller) -> bool:
        """Whether the caller repeats a walk for a call that needs a version; also when that can't be told."""
        retry = self._by_thread.get(caller.thread)
        return caller.thread <= 0 or (retry is not None and retry.writes)
