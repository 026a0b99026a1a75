"""What can go wrong with an origin, as far as it makes a difference to whoever asked."""

from __future__ import annotations

from errno import EIO, ENOENT

from hcfs.errors import HcfsError


class OriginError(HcfsError):
    """The origin can't be reached or answers with an error; it may be asked again."""

    errno = EIO


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
