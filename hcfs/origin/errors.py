"""What can go wrong with an origin, as far as it makes a difference to whoever asked."""

from __future__ import annotations

from errno import EIO, ENOENT

from hcfs.errors import HcfsError
from hcfs.origin.redact import redacted


class OriginError(HcfsError):
    """The origin can't be reached or answers with an error; it may be asked again. What it says has no secrets."""

    errno = EIO

    def __init__(self, message: str) -> None:
        super().__init__(redacted(message))


class OriginRefused(OriginError):
    """The origin refuses, as for want of a permission: asking again would change nothing."""


class NotAtOrigin(OriginError):
    """The origin says that there is no such object."""

    errno = ENOENT


class OriginChanged(OriginError):
    """The origin has other content under the key than the one that was asked for."""


class UploadConflict(OriginError):
    """The origin has other content under the key than the upload was to replace: somebody else wrote it."""


class WrongContent(OriginError):
    """All bytes came, and they aren't the object's."""
