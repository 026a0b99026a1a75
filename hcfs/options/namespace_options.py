"""Options of a namespace, a row each, and their form as internal extended attributes of its directory."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from hcfs.errors import UsageError
from hcfs.options.schemes import FORMS, SCHEMES, scheme_of
from hcfs.options.setters import Setter
from hcfs.options.table import Option, option, rows
from hcfs.options.values import OriginChanges, OriginUrl, OrNone, Patterns, Size, Word

PREFIX = b"hcfs."
"""An option is kept as the extended attribute PREFIX + its name, its value as text."""

ORIGIN = PREFIX + b"origin"

Verify = Literal["read", "open"]
OriginCheck = Literal["etag", "length"]
OriginOpen = Literal["stream", "whole"]
WritePolicy = Literal["read-only", "write-through", "write-back"]
WRITE_POLICIES: tuple[WritePolicy, ...] = ("read-only", "write-through", "write-back")


@dataclass(frozen=True, slots=True)
class NamespaceOptions:
    """What a namespace's directory says about the files in it. What needs an origin is None without one."""

    staging_patterns: tuple[str, ...] = option(
        Patterns(),
        "*.tmp",
        help="Unfinished files, as '*.tmp,*.incomplete'.",
        example="*.tmp,*.incomplete",
    )
    verify: Verify = option(
        Word("read", "open"),
        "read",
        help="read: check what is read; open: check the whole object before open returns.",
        example="open",
    )
    quota: int | None = option(
        OrNone(Size()),
        "none",
        help="Most bytes of the namespace, or none.",
        example="1G",
        none=True,
    )
    salt_quota: int | None = option(
        OrNone(Size()),
        "none",
        help="Most bytes of each LMCache cache salt, or none.",
        example="64M",
        none=True,
    )
    origin: str | None = option(
        OriginUrl(),
        "none",
        help=f"Where its files come from: {FORMS}.",
        example=SCHEMES[0].example,
        set_by=Setter.DAEMON,
        none=True,
    )
    origin_changes: str | None = option(
        OriginChanges(),
        OriginChanges.IMMUTABLE,
        help="Whether what is cached counts for ever, or is looked at again.",
        example="revalidate=60",
        set_by=Setter.DAEMON,
        none=True,
        needs="origin",
    )
    origin_check: OriginCheck | None = option(
        Word("etag", "length"),
        "etag",
        help="What is fetched must agree with this of the origin.",
        example="length",
        set_by=Setter.DAEMON,
        none=True,
        needs="origin",
    )
    origin_open: OriginOpen | None = option(
        Word("stream", "whole"),
        "stream",
        help="When an open of what is to be fetched returns.",
        example="whole",
        set_by=Setter.DAEMON,
        none=True,
        needs="origin",
    )
    write_policy: WritePolicy | None = option(
        Word(*WRITE_POLICIES, noun="policy"),
        "read-only",
        help="Whether, and when, files go to the origin.",
        example="write-back",
        set_by=Setter.DAEMON,
        none=True,
        needs="origin",
    )
    origin_problem: str | None = None
    """Why what is kept of the origin can't be used by this version; nothing is asked of it then."""

    @property
    def revalidate_s(self) -> float | None:
        """Seconds of `revalidate=SECONDS`; None for `immutable`, and without an origin."""
        return None if self.origin_changes is None else OriginChanges.seconds(self.origin_changes)

    @property
    def writes(self) -> bool:
        """Whether files may be stored here that then go to the origin."""
        return self.write_policy in ("write-through", "write-back")

    def is_staging_name(self, name: bytes) -> bool:
        """Whether one of the staging patterns matches the name (a path's last component)."""
        return _matcher(self.staging_patterns).fullmatch(name) is not None


OPTIONS: Mapping[str, Option] = rows(NamespaceOptions)
"""The rows by name."""


def row_of(name: str) -> Option:
    """UsageError for an option that there isn't."""
    if name not in OPTIONS:
        raise UsageError(f"there is no such option; give one of {', '.join(OPTIONS)}")
    return OPTIONS[name]


def checked(name: str, value: str | None) -> str | None:
    """The text to keep for an option's value; None for its default, as which a value of None counts.

    UsageError for an option that there isn't and for a value that it can't have.
    """
    try:
        row = row_of(name)
    except UsageError as error:
        raise UsageError(f"{name}={value} can't be set: {error}") from None
    return None if value is None else row.kept(value)


def parse(attributes: Mapping[bytes, bytes]) -> NamespaceOptions:
    """Options from a directory's extended attributes; those without PREFIX aren't options.

    UsageError for an option or value that this version can't honour: a later one wrote it. One of an origin is no
    reason to refuse everything else, since nothing there works without the origin: it becomes `origin_problem`.
    """
    texts = {
        key.removeprefix(PREFIX).decode(errors="backslashreplace"): raw.decode(errors="surrogateescape")
        for key, raw in attributes.items()
        if key.startswith(PREFIX)
    }
    problem, values = None, dict[str, Any]()
    for name, text in texts.items():
        try:
            checked(name, text)
            values[name] = OPTIONS[name].parse(text)
        except UsageError as error:
            if name != "origin" and (name not in OPTIONS or OPTIONS[name].needs != "origin"):
                raise
            problem = problem or str(error)
            if name == "origin":
                values[name] = text
    for row in OPTIONS.values():
        if row.needs is not None:
            there = values.get(row.needs) is not None
            values[row.name] = values.get(row.name, row.parse(row.default)) if there else None
    options = NamespaceOptions(**values)
    if options.origin is None:
        return options
    if options.verify == "open":
        options = replace(options, origin_open="whole")
    return replace(options, origin_problem=problem or _only_read(options))


def _only_read(options: NamespaceOptions) -> str | None:
    """Why an origin's write policy can't be kept; None where it can."""
    scheme = scheme_of(options.origin or "")
    if scheme is None or scheme.writer is not None or not options.writes:
        return None
    return f"write_policy={options.write_policy} can't be kept: {scheme.title} is only read; give read-only"


@lru_cache(maxsize=256)
def _matcher(patterns: tuple[str, ...]) -> re.Pattern[bytes]:
    # fnmatch has no form for bytes names that also keeps case on every platform and several patterns at once. Latin-1
    # makes a character of each byte, so "?" is one byte.
    as_bytes = (pattern.encode(errors="surrogateescape").decode("latin-1") for pattern in patterns)
    return re.compile("|".join(map(fnmatch.translate, as_bytes)).encode("latin-1"))
