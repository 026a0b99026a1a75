"""A granule that doesn't verify: the object is a miss for everybody before its reader gets the error."""

from __future__ import annotations

import errno
import logging

from hcfs.errors import HcfsError
from hcfs.mount.answers import CallError
from hcfs.mount.object_handle import ObjectHandle
from hcfs.mount.publishing import Publishing
from hcfs.store.errors import DamagedGranule

log = logging.getLogger(__name__)


class Damage(Publishing):
    """No lock is held anywhere here: the kernel is told, and waited for, in between."""

    def quarantine(self, oid: int, generation: int, reason: str) -> None:
        """Take an object's names away, in the store and then in the kernel, unless it has other content by now than the
        bad one, which is that of `generation`. Blocks; never from the thread that answers
        lookups, which the kernel may be waiting for in the same directory.

        The object's pages are dropped later, by themselves: to wait for that before the read is answered that found the
        damage would wait for ever, since the kernel holds the page for that read.
        """
        try:
            names = self.store.quarantine(oid, reason, generation)
        except HcfsError as refused:
            log.warning("object %d is damaged (%s) and can't be quarantined: %s", oid, reason, refused)
            return
        if names:
            log.warning("object %d is quarantined: %s", oid, reason)
        self.kernel.forget_names_now(names)
        self.kernel.forget_pages(oid)

    def read_object(self, handle: ObjectHandle, offset: int, length: int) -> memoryview:
        """Verified bytes, short at the end of the object only; EIO where a granule is bad, counted once a handle."""
        pin = handle.pin
        length = min(length, pin.size - offset)
        if length <= 0:
            return memoryview(b"")
        if handle.bad:
            granule = self.store.superblock.granule
            for index in range(offset // granule, (offset + length - 1) // granule + 1):
                if index in handle.bad:
                    raise CallError(handle.bad[index])
        try:
            return self.store.read(pin, offset, length)
        except DamagedGranule as error:
            handle.bad[error.granule] = errno.EIO
            self.quarantine(error.oid, error.generation, str(error))
            raise
