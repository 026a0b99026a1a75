"""What is kept on the device of a file that its origin doesn't have yet, and of one that it has."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from hcfs.store.attributes import UNSYNCED_XATTR

ETAG = b"hcfs.etag"
"""The extended attribute of a committed file that says which content of its origin's it is."""

SYNC = UNSYNCED_XATTR
"""That of one which its origin doesn't have: it must not be evicted, nor dropped by anything but its users' words. A
file has one of the two, or neither where nothing of it ever goes to an origin."""

DOUBT = b"hcfs.doubt"
"""That of one which this device was replacing or removing at its origin: after a crash nobody knows whether that came
to pass, and the origin is asked again."""

WIDTH = 192
"""Bytes that a record has at least: it is replaced in place while a version is published, when no more metadata room
can be had than the version had reserved."""

ANYTHING = "*"
"""As an ETag: whatever the origin has."""

ABSENT = ""
"""As an ETag: the origin has nothing."""


@dataclass(frozen=True, slots=True)
class SyncRecord:
    """Where a file stands on its way to its origin. Durable with the change that it is part of."""

    base: str = ABSENT
    """The ETag that the origin must have under its key when it is uploaded; ABSENT: nothing; ANYTHING: whatever."""
    reason: str | None = None
    """Why it was given up (SYNC_FAILED), a sentence; None: it is to be uploaded (DIRTY)."""

    @classmethod
    def decode(cls, value: bytes) -> SyncRecord:
        """What can't be read is a file whose upload has failed for that: never one that may go."""
        try:
            words = json.loads(value)
            return cls(str(words["base"]), None if words.get("reason") is None else str(words["reason"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return cls(ABSENT, "its record can't be read; say with 'hcfs sync' what is to become of it")

    def encode(self) -> bytes:
        words = {"base": self.base} if self.reason is None else {"base": self.base, "reason": self.reason}
        return json.dumps(words).encode().ljust(WIDTH)

    def failed(self, reason: str) -> SyncRecord:
        """The same, given up."""
        return replace(self, reason=reason)

    def again(self, *, base: str | None = None) -> SyncRecord:
        """The same, to be uploaded again; base: to replace another content than before."""
        return SyncRecord(self.base if base is None else base)
