"""A committed object that is open for reading."""

from __future__ import annotations

from hcfs.store import Pin


class ObjectHandle:
    """A committed object opened for reading. Its pin keeps the content whatever happens to the name."""

    __slots__ = ("bad", "pin")

    def __init__(self, pin: Pin) -> None:
        self.pin = pin
        self.bad: dict[int, int] = {}
        """Granules that didn't verify, and the errno of each: the kernel asks again for every page of one."""
