"""LMCache's chunk keys and the names of the files that hold them.

LMCache names a chunk's file after its key, fields joined by `@`:

    MODEL@0xRANK@GROUP@HASH.data          0.5.6, without a cache salt
    MODEL@0xRANK@GROUP@HASH@SALT.data     0.5.6, with one
    MODEL@0xRANK@HASH.data                before object groups
    MODEL@0xRANK@HASH@SALT.data           before object groups, with a salt

MODEL has `/` replaced by `-SEP-`; RANK is at least 8 hexadecimal digits, GROUP hexadecimal without leading zeros, HASH
two digits a byte. A key without a group and one with group 0 are different files: no version looks for both.

Source: `_object_key_to_filename` in lmcache/v1/distributed/l2_adapters/fs_l2_adapter.py and
`FSConnector::key_to_filename` in csrc/storage_backends/fs/connector.cpp of LMCache 0.5.6.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SEPARATOR = "@"
SLASH_REPLACEMENT = "-SEP-"
SUFFIX = ".data"
SALT_CHARACTERS_MAX = 128

# Two shapes have four fields. They are told apart by the third: LMCache's hashes have 4 bytes and more, and no model
# has 2^28 object groups.
_HASH_BYTES_MIN = 4
_GROUP_END = 1 << 28

_HEX = re.compile(r"[0-9a-f]+")
_RANK = re.compile(r"0x([0-9a-f]{8}|[1-9a-f][0-9a-f]{8,})")
_GROUP = re.compile(r"0|[1-9a-f][0-9a-f]{0,6}")
_NOT_IN_SALT = frozenset("@/\\\0")


@dataclass(frozen=True, slots=True)
class Key:
    """What identifies a chunk. ValueError for values that LMCache refuses, or whose name would read as another's."""

    model: str
    """The model's name, `/` included; no `@`."""
    rank: int
    """Which slice of the KV cache: world size, rank, local world size and local rank, one byte each from the top."""
    group: int | None
    """The object group; None in names of versions that had no groups."""
    hash: str
    """The chunk's hash, lower-case hexadecimal, two digits a byte."""
    salt: str = ""
    """The tenant's cache salt, at most 128 characters; empty for none."""

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise ValueError(problem)

    def _problem(self) -> str:
        if SEPARATOR in self.model or "\0" in self.model:
            return f"the model name {self.model!r} contains '@' or NUL, which LMCache refuses"
        if self.rank < 0:
            return f"the rank {self.rank} is negative"
        if self.group is not None and not 0 <= self.group < _GROUP_END:
            return f"the object group {self.group} is not between 0 and {_GROUP_END - 1}"
        if not _is_hash(self.hash):
            return f"the hash {self.hash!r} is not {_HASH_BYTES_MIN} bytes or more in lower-case hexadecimal"
        if self.salt and not _is_salt(self.salt):
            return f"the salt {self.salt!r} contains one of @ / \\ NUL or exceeds {SALT_CHARACTERS_MAX} characters"
        return ""


@dataclass(frozen=True, slots=True)
class ChunkName:
    """A file name that is a chunk's."""

    name: str
    key: Key
    model_is_ambiguous: bool
    """The name contains `-SEP-`, which stands for a `/` (as `key` has it) but may also be part of the model's name: the
    replacement is not injective, and two such models share their files."""


@dataclass(frozen=True, slots=True)
class OtherName:
    """A file name that is not a chunk's."""

    name: str
    """Printable: what isn't UTF-8 is shown as escapes."""
    reason: str


def file_name(key: Key) -> str:
    """The name of the file in which LMCache keeps the chunk."""
    fields = [key.model.replace("/", SLASH_REPLACEMENT), f"{key.rank:#010x}"]
    if key.group is not None:
        fields.append(f"{key.group:x}")
    fields.append(key.hash)
    if key.salt:
        fields.append(key.salt)
    return SEPARATOR.join(fields) + SUFFIX


def parse_name(name: str | bytes) -> ChunkName | OtherName:
    """The key in a file's name, without its directories.

    Only what LMCache can have written counts: for every ChunkName, `file_name` of its key is the name again.
    """
    try:
        text = name.decode() if isinstance(name, bytes) else name
        text.encode()
    except UnicodeError:
        if isinstance(name, str):
            name = name.encode(errors="backslashreplace")
        return OtherName(name.decode(errors="backslashreplace"), "not UTF-8")
    if not text.endswith(SUFFIX):
        return OtherName(text, f"does not end in {SUFFIX}")
    if "/" in text or "\0" in text:
        return OtherName(text, "not a file's name: it contains '/' or NUL")
    fields = text.removesuffix(SUFFIX).split(SEPARATOR)
    if not 3 <= len(fields) <= 5:
        return OtherName(text, f"{len(fields)} fields separated by '@', where LMCache writes 3 to 5")
    model, rank, *rest = fields
    if not _RANK.fullmatch(rank):
        return OtherName(text, f"{rank!r} is not a rank (0x and 8 or more hexadecimal digits)")
    parts = _group_hash_salt(rest)
    if isinstance(parts, str):
        return OtherName(text, parts)
    group, digest, salt = parts
    key = Key(model.replace(SLASH_REPLACEMENT, "/"), int(rank, 16), group, digest, salt)
    return ChunkName(text, key, SLASH_REPLACEMENT in model)


def _group_hash_salt(fields: list[str]) -> tuple[int | None, str, str] | str:
    """The fields after the rank as group, hash and salt, or why they are none."""
    first, *others = fields
    group: int | None = None
    if others and _GROUP.fullmatch(first):
        group = int(first, 16)
        first, *others = others
    if not _is_hash(first):
        wanted = "a chunk hash" if group is not None or not others else "an object group or a chunk hash"
        return f"{first!r} is not {wanted}"
    if not others:
        return group, first, ""
    if len(others) > 1:
        return f"{first!r} is not an object group, which five fields have in third place"
    if not _is_salt(others[0]):
        return f"{others[0]!r} is not a cache salt"
    return group, first, others[0]


def _is_hash(text: str) -> bool:
    return len(text) >= 2 * _HASH_BYTES_MIN and len(text) % 2 == 0 and _HEX.fullmatch(text) is not None


def _is_salt(text: str) -> bool:
    return 0 < len(text) <= SALT_CHARACTERS_MAX and not _NOT_IN_SALT & set(text)
