"""Options of a namespace: their values, and their form as internal extended attributes of its directory."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal
from urllib.parse import unquote, urlsplit

from hcfs.cache.sizes import parse_size
from hcfs.errors import UsageError

PREFIX = b"hcfs."
"""An option is kept as the extended attribute PREFIX + its name, its value as text."""

ORIGIN = PREFIX + b"origin"

QUOTA_MAX = (1 << 63) - 1
"""Bytes: more than any device has."""

PATTERNS_MAX = 16
PATTERN_LENGTH_MAX = 255
"""Bytes."""

Verify = Literal["read", "open"]
OriginCheck = Literal["etag", "length"]
OriginOpen = Literal["stream", "whole"]
WritePolicy = Literal["read-only", "write-through", "write-back"]
WRITE_POLICIES: tuple[WritePolicy, ...] = ("read-only", "write-through", "write-back")

IMMUTABLE = "immutable"
REVALIDATE = "revalidate="
REVALIDATE_MAX = 30 * 24 * 3600
"""Seconds."""


@dataclass(frozen=True, slots=True)
class NamespaceOptions:
    """What a namespace's directory says about the files in it."""

    staging_patterns: tuple[str, ...] = ("*.tmp",)
    """Names (fnmatch, case kept) whose versions wait for a rename instead of being published at the last close."""
    verify: Verify = "read"
    """Check granules as they are read, or the whole object before open returns."""
    quota: int | None = None
    """Bytes that its files may occupy; None for no other bound than the device's."""
    salt_quota: int | None = None
    """Bytes that the files of each LMCache cache salt may occupy; None for no bound."""
    origin: str | None = None
    """URL; None for local only."""
    origin_changes: str | None = None
    """`immutable`: what is cached counts for ever; `revalidate=SECONDS`: no open gets what the origin had replaced or
    removed more than so many seconds ago. None without an origin."""
    origin_check: OriginCheck | None = None
    """What a fetched object must agree with: its length and, where that is an MD5, its ETag; or its length alone. None
    without an origin."""
    origin_open: OriginOpen | None = None
    """Whether an open returns when the fetch has begun, and bytes are read as they arrive, or when the file is here and
    checked. `verify=open` implies the latter. None without an origin."""
    write_policy: WritePolicy | None = None
    """How files reach the origin: not at all (`read-only`), before a close or rename returns (`write-through`), or
    later (`write-back`). None without an origin."""
    origin_problem: str | None = None
    """Why what is kept of the origin can't be used by this version; nothing is asked of it then."""

    @property
    def revalidate_s(self) -> float | None:
        """Seconds of `revalidate=SECONDS`; None for `immutable`, and without an origin."""
        changes = self.origin_changes
        return None if changes is None or changes == IMMUTABLE else float(changes.removeprefix(REVALIDATE))

    @property
    def writes(self) -> bool:
        """Whether files may be stored here that then go to the origin."""
        return self.write_policy in ("write-through", "write-back")

    def is_staging_name(self, name: bytes) -> bool:
        """Whether one of the staging patterns matches the name (a path's last component)."""
        return _matcher(self.staging_patterns).fullmatch(name) is not None


_QUOTAS = ("quota", "salt_quota")

OF_ORIGIN = ("origin_changes", "origin_check", "origin_open", "write_policy")
"""Options that say something only beside an origin."""

ABOUT_ORIGIN = ("origin", *OF_ORIGIN)
"""Options by which the daemon reads and writes elsewhere, with its own rights."""

OPTIONS = ("staging_patterns", "verify", *_QUOTAS, "origin", *OF_ORIGIN)
"""Names of all options."""


def checked(option: str, value: str | None) -> str | None:
    """The text to keep for an option's value; None for its default, as which a value of None counts.

    staging_patterns are separated by commas; quota and salt_quota are sizes, as 1G or plain bytes; `none` stands for no
    quota, salt_quota and origin, and for the default of an option of an origin.
    UsageError for an option that there isn't and for a value that it can't have.
    """
    if option not in OPTIONS:
        raise UsageError(f"{option}={value} can't be set: there is no such option; give one of {', '.join(OPTIONS)}")
    if value is None:
        return None
    if option == "origin":
        return None if value == "none" else _origin(value)
    if option in OF_ORIGIN:
        return None if value == "none" else _of_origin(option, value)
    if option in _QUOTAS:
        return None if value == "none" else str(_quota(option, value))
    if option == "verify":
        if value not in ("read", "open"):
            raise UsageError(f"verify={value} can't be set: there is no such value; give read or open")
        return None if value == "read" else value
    patterns = _patterns(value)
    return None if patterns == NamespaceOptions().staging_patterns else ",".join(patterns)


def parse(attributes: Mapping[bytes, bytes]) -> NamespaceOptions:
    """Options from a directory's extended attributes; those without PREFIX aren't options.

    UsageError for an option or value that this version can't honour: a later one wrote it. One of an origin is no
    reason to refuse everything else, since nothing there works without the origin: it becomes `origin_problem`.
    """
    options = NamespaceOptions()
    texts: dict[str, str | None] = {}
    problem = None
    for key, raw in attributes.items():
        if key.startswith(PREFIX):
            option = key.removeprefix(PREFIX).decode(errors="backslashreplace")
            text = raw.decode(errors="surrogateescape")
            try:
                value = texts[option] = checked(option, text)
            except UsageError as error:
                if option != "origin" and option not in OF_ORIGIN:
                    raise
                problem = problem or str(error)
                value = texts[option] = text if option == "origin" else None
            if option == "verify" and value is not None:
                options = replace(options, verify="open")
            elif option == "quota" and value is not None:
                options = replace(options, quota=int(value))
            elif option == "salt_quota" and value is not None:
                options = replace(options, salt_quota=int(value))
            elif option == "staging_patterns" and value is not None:
                options = replace(options, staging_patterns=tuple(value.split(",")))
    if texts.get("origin") is None:
        return options
    return replace(
        options,
        origin=texts["origin"],
        origin_changes=texts.get("origin_changes") or IMMUTABLE,
        origin_check="length" if texts.get("origin_check") == "length" else "etag",
        origin_open="whole" if texts.get("origin_open") == "whole" or options.verify == "open" else "stream",
        write_policy=_write_policy(texts.get("write_policy")),
        origin_problem=problem,
    )


def _origin(value: str) -> str:
    """An origin's URL, if it is one that can be had."""
    problem = ""
    try:
        parts = urlsplit(value)
        value.encode()
    except ValueError:  # as of brackets that no host is in
        problem, parts = "it isn't a URL, nor UTF-8", urlsplit("")
    if problem:
        pass
    elif any(character in value for character in "\0\n?#"):
        problem = "it has a character that no origin has"
    elif "@" in parts.netloc:
        problem = "credentials aren't part of it: they come from the daemon's environment"
    elif parts.scheme in ("s3", "gs"):
        problem = _problem_of_prefix(parts.path) if parts.netloc else "it names no bucket"
    elif parts.scheme == "file":
        problem = "" if not parts.netloc and parts.path.startswith("/") else "the directory must be absolute"
    elif not value.startswith("/"):
        problem = "it is none of those that this version of hcfs reads"
    if problem:
        raise UsageError(
            f"origin={value} can't be set: {problem}; give s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, file:///DIRECTORY "
            "or /DIRECTORY"
        )
    return value


def _problem_of_prefix(path: str) -> str:
    """What keeps the client from asking for just this prefix; "" for nothing. It would make another one of it."""
    prefix = unquote(path)
    inside = prefix.strip("/")
    if prefix != prefix.strip() or (inside and not {"", ".", ".."}.isdisjoint(inside.split("/"))):
        return "its prefix begins or ends with a blank, or has an empty part, . or .."
    return ""


def _of_origin(option: str, value: str) -> str | None:
    """The text to keep of an option of an origin; None for its default."""
    if option == "origin_check":
        if value not in ("etag", "length"):
            raise UsageError(f"origin_check={value} can't be set: there is no such value; give etag or length")
        return None if value == "etag" else value
    if option == "origin_open":
        if value not in ("stream", "whole"):
            raise UsageError(f"origin_open={value} can't be set: there is no such value; give stream or whole")
        return None if value == "stream" else value
    if option == "write_policy":
        if value not in WRITE_POLICIES:
            raise UsageError(
                f"write_policy={value} can't be set: there is no such policy; give {', '.join(WRITE_POLICIES)}"
            )
        return None if value == "read-only" else value
    if value == IMMUTABLE:
        return None
    seconds = value.removeprefix(REVALIDATE)
    if seconds == value or not re.fullmatch(r"[0-9]{1,7}", seconds) or int(seconds) > REVALIDATE_MAX:
        raise UsageError(
            f"origin_changes={value} can't be set: give immutable, or revalidate=SECONDS with at most {REVALIDATE_MAX}"
        )
    return f"{REVALIDATE}{int(seconds)}"


def _write_policy(text: str | None) -> WritePolicy:
    return next((policy for policy in WRITE_POLICIES if policy == text), "read-only")


def _quota(option: str, value: str) -> int:
    nbytes = parse_size(value)
    if nbytes is None or nbytes > QUOTA_MAX:
        raise UsageError(f"{option}={value} can't be set: it isn't a size; give one such as 64M or 1G, or none")
    return nbytes


def _patterns(value: str) -> tuple[str, ...]:
    patterns = tuple(dict.fromkeys(part.strip() for part in value.split(",")))
    if len(patterns) > PATTERNS_MAX:
        raise UsageError(f"staging_patterns={value} can't be set: more than {PATTERNS_MAX} patterns; give fewer")
    for pattern in patterns:
        problem = _problem(pattern)
        if problem:
            raise UsageError(f"staging_patterns={value} can't be set: {problem}, as in *.tmp,*.incomplete")
    return patterns


def _problem(pattern: str) -> str | None:
    """Why a pattern can't be one, and what to do; None when it can."""
    if not pattern:
        return "one of the patterns is empty; separate patterns with single commas"
    if "/" in pattern or "\0" in pattern:
        return f"{pattern!r} has a character that no name has; give patterns of names without directories"
    if len(pattern.encode(errors="surrogateescape")) > PATTERN_LENGTH_MAX:
        return f"{pattern[:20]!r}... has more than {PATTERN_LENGTH_MAX} bytes; give shorter patterns"
    if not pattern.strip("*"):
        return f"{pattern!r} matches every name, so nothing would ever be published; give patterns of temporary names"
    if pattern.endswith(".lock"):
        return f"{pattern!r} is for lock files, which are never staged; give patterns of temporary names"
    return None


@lru_cache(maxsize=256)
def _matcher(patterns: tuple[str, ...]) -> re.Pattern[bytes]:
    # fnmatch has no form for bytes names that also keeps case on every platform and several patterns at once. Latin-1
    # makes a character of each byte, so "?" is one byte.
    as_bytes = (pattern.encode(errors="surrogateescape").decode("latin-1") for pattern in patterns)
    return re.compile("|".join(map(fnmatch.translate, as_bytes)).encode("latin-1"))
