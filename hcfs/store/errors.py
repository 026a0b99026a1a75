"""What the store refuses, one class a condition; each carries the errno that a system call answers."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from hcfs.errors import HcfsError

if TYPE_CHECKING:
    from hcfs.store.pins import Pin


class StoreError(HcfsError):
    """Base of everything the store refuses."""

    errno = errno.EIO


class NotAStore(StoreError):
    """No valid hcfs superblock on the device."""

    errno = errno.EINVAL


class UnsupportedFormat(StoreError):
    """A superblock with a version or incompat bits that this program doesn't know."""

    errno = errno.EOPNOTSUPP


class DeviceSizeMismatch(StoreError):
    """The device is smaller than its superblock says, or too small to format."""

    errno = errno.EINVAL


class CorruptMetadata(StoreError):
    """Metadata that doesn't verify where it must."""


class TooLittleMemory(StoreError):
    """The machine has too little memory left for a store's index."""

    errno = errno.ENOMEM


class ReadOnlyStore(StoreError):
    """A change was asked of a store that is read-only."""

    errno = errno.EROFS


class NoSuchName(StoreError):
    errno = errno.ENOENT


class NoSuchObject(StoreError):
    """The object id isn't, or is no longer, in the store."""

    errno = errno.ESTALE


class NameExists(StoreError):
    errno = errno.EEXIST


class NotADirectory(StoreError):
    errno = errno.ENOTDIR


class IsADirectory(StoreError):
    errno = errno.EISDIR


class DirectoryNotEmpty(StoreError):
    errno = errno.ENOTEMPTY


class DirectoryIntoItself(StoreError):
    errno = errno.EINVAL


class NameTooLong(StoreError):
    errno = errno.ENAMETOOLONG


class InvalidName(StoreError):
    errno = errno.EINVAL


class AcrossNamespaces(StoreError):
    """A rename or link between namespaces."""

    errno = errno.EXDEV


class NotPermitted(StoreError):
    errno = errno.EPERM


class TooManyLinks(StoreError):
    errno = errno.EMLINK


class NoSuchAttribute(StoreError):
    errno = errno.ENODATA


class AttributeTooLarge(StoreError):
    errno = errno.E2BIG


class NoSpace(StoreError):
    """The data area has no room and nothing could be evicted."""

    errno = errno.ENOSPC


class QuotaExceeded(StoreError):
    """The object's owner has used up its quota, and nothing of its own could be evicted."""

    errno = errno.EDQUOT


class MetadataFull(NoSpace):
    """The metadata region, or the object limit, has no room and nothing could be evicted."""


class ObjectTooLarge(StoreError):
    errno = errno.EFBIG


class StagedFailed(StoreError):
    """The staged object failed before, or was abandoned or published."""


class StagedDamaged(StoreError):
    """The device gives other bytes of a staged object than were written to it."""


class DamagedGranule(StoreError):
    """Bytes of an object that can't be handed out: `oid`, `generation` of the content that was read, `granule`
    (index)."""

    def __init__(self, pin: Pin, granule: int, text: str) -> None:
        super().__init__(f"granule {granule} of object {pin.oid} {text}")
        self.oid = pin.oid
        self.generation = pin.generation
        self.granule = granule


class ChecksumMismatch(DamagedGranule):
    """A granule didn't verify."""

    def __init__(self, pin: Pin, granule: int) -> None:
        super().__init__(pin, granule, "doesn't match its checksum")


class UnreadableGranule(DamagedGranule):
    """The device couldn't read a granule, or its checksum."""

    def __init__(self, pin: Pin, granule: int, reason: str) -> None:
        super().__init__(pin, granule, f"can't be read: {reason}")


class UnreadableChecksums(StoreError):
    """The device couldn't read the checksums of an object, without which no checkpoint can be written."""
