"""LMCache's cache salt, one tenant's mark, as it stands in the names of chunk files."""

from __future__ import annotations

import re

# Fields joined by "@": model, kv rank, object group, chunk hash, salt. Versions before 0.5.6 have no group; a hash has
# eight digits and more, a group fewer, so the two shapes with four fields are told apart.
_SALTED = re.compile(rb"[^@]*@0x[0-9a-f]{8,}@(?:[0-9a-f]{1,7}@)?[0-9a-f]{8,}@([^@]+)\.data", re.DOTALL)

_STAGED = re.compile(_SALTED.pattern + rb"\.[^@]*", re.DOTALL)


def salt_of(name: bytes) -> bytes | None:
    """The salt in a file's name (its last component); None for a chunk without one and for other files."""
    match = _SALTED.fullmatch(name)
    return match[1] if match else None


def staged_salt_of(name: bytes) -> bytes | None:
    """The salt in a staging name that is a chunk's name with something behind it, as `NAME.tmp`; else None."""
    match = _STAGED.fullmatch(name)
    return match[1] if match else None
