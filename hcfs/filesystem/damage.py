"""A granule that doesn't verify: the object is a miss for everybody before its reader gets the error."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import TypeVar

from hcfs.errors import HcfsError
from hcfs.filesystem.calls import CallError
from hcfs.filesystem.versions.policy import Policies
from hcfs.filesystem.volume import Volume
from hcfs.store import Pin
from hcfs.store.errors import DamagedGranule

log = logging.getLogger(__name__)

T = TypeVar("T")


class Damage:
    """No lock is held anywhere here: the kernel is told, and waited for, in between."""

    def __init__(self, volume: Volume, policies: Policies) -> None:
        self._store = volume.store
        self._kernel = volume.kernel
        self._policies = policies

    def watch(self, read: Callable[[], T], bad: dict[int, int] | None = None) -> T:
        """Read, and quarantine what turns out to be damaged before the reader is told. Blocks. bad: gets the granule,
        and the errno for those who ask for it again."""
        try:
            return read()
        except DamagedGranule as error:
            if bad is not None:
                bad[error.granule] = errno.EIO
            self.quarantine(error.oid, error.generation, str(error))
            raise

    def quarantine(self, oid: int, generation: int, reason: str) -> None:
        """Take an object's names away, in the store and then in the kernel, unless it has other content by now than the
        bad one, which is that of `generation`. Blocks; never from the thread that answers
        lookups, which the kernel may be waiting for in the same directory.

        The object's pages are dropped later, by themselves: to wait for that before the read is answered that found the
        damage would wait for ever, since the kernel holds the page for that read.
        """
        policy = self._policies.of(self._namespace_of(oid))
        if policy is not None and policy.keeps_damaged(oid, generation, reason):
            self._kernel.forget_pages(oid)
            return
        known_as = oid if policy is None else policy.known_as(oid)
        try:
            names = self._store.quarantine(oid, reason, generation)
        except HcfsError as refused:
            log.warning("object %d is damaged (%s) and can't be quarantined: %s", oid, reason, refused)
            return
        if names:
            log.warning("object %d is quarantined: %s", oid, reason)
        self._kernel.forget_names_now(names)
        self._kernel.forget_pages(oid)
        if known_as != oid:
            self._kernel.forget_pages(known_as)

    def _namespace_of(self, oid: int) -> int:
        """0 for what is gone, or has no name any more."""
        try:
            return self._store.namespace_of(oid)
        except HcfsError:
            return 0

    def verify_for_open(self, pin: Pin) -> None:
        """Check every byte of an object. Blocks. ENOENT instead of a bad one, whose pin is released: for clients that
        take only that for a miss, and mmap users, who would get SIGBUS."""
        try:
            self.watch(lambda: self._store.content.verify(pin))
        except DamagedGranule as error:
            pin.release()
            raise CallError(errno.ENOENT) from error
