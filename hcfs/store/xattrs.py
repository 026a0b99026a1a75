"""Limits of extended attributes."""

from __future__ import annotations

from hcfs.store.attributes import INTERNAL_XATTR
from hcfs.store.errors import AttributeTooLarge, NameExists, NoSuchAttribute

XATTR_NAME_MAX = 255
XATTR_VALUE_MAX = 65_536
EXTRA_MAX = 1 << 18
"""Bytes of all extended attributes of one object together, or a symlink's target"""


def check_xattr(xattrs: dict[bytes, bytes], name: bytes, value: bytes, *, create: bool, replace: bool) -> None:
    """Whether an extended attribute may be set; raises NameExists, NoSuchAttribute, AttributeTooLarge, NameTooLong."""
    if create and name in xattrs:
        raise NameExists(f"the extended attribute {name!r} exists")
    if replace and name not in xattrs:
        raise NoSuchAttribute(f"no extended attribute {name!r}")
    if not 0 < len(name) <= XATTR_NAME_MAX or len(value) > XATTR_VALUE_MAX:
        raise AttributeTooLarge(
            f"an extended attribute has a name of 1 to {XATTR_NAME_MAX} and a value of at most {XATTR_VALUE_MAX} bytes"
        )
    others = sum(len(k) + len(v) for k, v in xattrs.items() if k != name and not k.startswith(INTERNAL_XATTR))
    if others + len(name) + len(value) > EXTRA_MAX:
        raise AttributeTooLarge(f"the extended attributes of one object may take {EXTRA_MAX} bytes together")
