"""The kinds of values that options have: how each is read and written, and what to give instead of what it isn't."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from hcfs.options.schemes import FORMS, SCHEMES, local_path, problem_of
from hcfs.options.sizes import parse_size

T = TypeVar("T")

SIZE_MAX = (1 << 63) - 1
"""Bytes: more than any device has."""


class NoSuchValue(ValueError):
    """A text can't be this value: why not, and after a semicolon what to give. Whoever raises it doesn't know the
    option; whoever knows that puts its name before."""


class Value(Protocol[T]):
    """A kind of value."""

    @property
    def metavar(self) -> str:
        """What stands for it in help."""

    @property
    def unit(self) -> str:
        """Of the value where a program reads it, as in `.hcfs/config.json`; "" for a text."""

    def parse(self, text: str) -> T:
        """NoSuchValue."""

    def text(self, value: T) -> str:
        """What `parse` makes this value of."""


class Time:
    """`10`, `0.5`, `500ms`, `10s`, `5m`, `2h`, `1d`."""

    metavar = "TIME"
    unit = "seconds"
    _FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)?")
    _UNITS = {"ms": 0.001, None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}  # noqa: RUF012  # never changed

    def __init__(self, *, zero: bool = True) -> None:
        """zero: whether it may be 0."""
        self._zero = zero

    def parse(self, text: str) -> float:
        match = self._FORM.fullmatch(text)
        if match is None:
            raise NoSuchValue("it isn't a time; give 500ms, 10s, 5m, or plain seconds")
        seconds = float(match[1]) * self._UNITS[match[2]]
        if not seconds and not self._zero:
            raise NoSuchValue("it is no time at all; give one above 0, such as 1s")
        return seconds

    def text(self, value: float) -> str:
        return f"{value:g}"


class Part:
    """`0.95` or `95%`."""

    metavar = "PART"
    unit = "parts of 1"

    def parse(self, text: str) -> float:
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            number = -1.0
        if not 0 <= number <= 1:
            raise NoSuchValue("it isn't a part of the whole; give 0.95 or 95%")
        return number

    def text(self, value: float) -> str:
        return f"{value:g}"


class Size:
    """`4096`, `64K`, `256M`, `1G`, `2T` (powers of 1024)."""

    metavar = "SIZE"
    unit = "bytes"

    def __init__(self, *, least: int = 0) -> None:
        self._least = least

    def parse(self, text: str) -> int:
        nbytes = parse_size(text)
        if nbytes is None or nbytes > SIZE_MAX:
            raise NoSuchValue("it isn't a size; give one such as 64M or 1G")
        if nbytes < self._least:
            raise NoSuchValue(f"it is too little; give at least {self._least >> 20}M")
        return nbytes

    def text(self, value: int) -> str:
        return str(value)


class Number:
    """A whole number."""

    metavar = "NUMBER"
    unit = ""

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most

    def parse(self, text: str) -> int:
        if not re.fullmatch("[0-9]{1,18}", text) or not self._least <= int(text) <= self._most:
            raise NoSuchValue(f"it isn't such a number; give one from {self._least} to {self._most}")
        return int(text)

    def text(self, value: int) -> str:
        return str(value)


class Word:
    """One of some words."""

    unit = ""

    def __init__(self, *words: str, noun: str = "value") -> None:
        self.words = words
        self.metavar = "|".join(words)
        self._noun = noun

    def parse(self, text: str) -> str:
        if text not in self.words:
            separator = " or " if len(self.words) == 2 else ", "
            raise NoSuchValue(f"there is no such {self._noun}; give {separator.join(self.words)}")
        return text

    def text(self, value: str) -> str:
        return value


class Path:
    """A file's path."""

    metavar = "FILE"
    unit = ""

    def parse(self, text: str) -> str:
        if not text or "\0" in text:
            raise NoSuchValue("it names no file; give a path")
        return text

    def text(self, value: str) -> str:
        return value


class OriginUrl:
    """Where a namespace's files come from."""

    metavar = "URL"
    unit = ""

    def parse(self, text: str) -> str:
        problem = problem_of(text)
        if problem:
            raise NoSuchValue(f"{problem}; give {FORMS}")
        return text

    def text(self, value: str) -> str:
        return value


class OriginPrefix:
    """What URLs of origins begin with: a URL itself, or with a scheme of buckets alone all of them."""

    metavar = "URL"
    unit = ""

    def parse(self, text: str) -> str:
        if any(text == scheme.prefix for scheme in SCHEMES if not scheme.local):
            return text
        path = local_path(text)
        problem = problem_of(text)
        if not text:
            problem = "it names no origin"
        elif text == "none":
            problem = "without the option no origin is allowed"
        elif not problem and path is not None and names_nothing(path):
            problem = "a directory must be named"
        if problem:
            raise NoSuchValue(f"{problem}; give {FORMS}")
        return text

    def text(self, value: str) -> str:
        return value


def names_nothing(path: str) -> bool:
    """Whether a path leads to the root directory."""
    depth = 0
    for part in path.split("/"):
        depth = max(0, depth - 1) if part == ".." else depth + (part not in ("", "."))
    return not depth


class OriginChanges:
    """`immutable`, or `revalidate=SECONDS`."""

    metavar = "immutable|revalidate=SECONDS"
    unit = ""
    IMMUTABLE = "immutable"
    REVALIDATE = "revalidate="
    MOST = 30 * 24 * 3600
    """Seconds."""

    def parse(self, text: str) -> str:
        if text == self.IMMUTABLE:
            return text
        seconds = text.removeprefix(self.REVALIDATE)
        if seconds == text or not re.fullmatch(r"[0-9]{1,7}", seconds) or int(seconds) > self.MOST:
            raise NoSuchValue(f"give immutable, or revalidate=SECONDS with at most {self.MOST}")
        return f"{self.REVALIDATE}{int(seconds)}"

    def text(self, value: str) -> str:
        return value

    @classmethod
    def seconds(cls, value: str) -> float | None:
        """Of a revalidation; None for `immutable`."""
        return None if value == cls.IMMUTABLE else float(value.removeprefix(cls.REVALIDATE))


class Patterns:
    """Patterns of names (fnmatch), separated by commas."""

    metavar = "PATTERNS"
    unit = ""
    MOST = 16
    LENGTH_MAX = 255
    """Bytes."""

    def parse(self, text: str) -> tuple[str, ...]:
        patterns = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
        if len(patterns) > self.MOST:
            raise NoSuchValue(f"more than {self.MOST} patterns; give fewer")
        for pattern in patterns:
            problem = self._problem(pattern)
            if problem:
                raise NoSuchValue(f"{problem}, as in *.tmp,*.incomplete")
        return patterns

    def text(self, value: Sequence[str]) -> str:
        return ",".join(value)

    def _problem(self, pattern: str) -> str | None:
        """Why a pattern can't be one, and what to do; None when it can."""
        shown = repr(pattern)
        if not pattern:
            return "one of the patterns is empty; separate patterns with single commas"
        if "/" in pattern or "\0" in pattern:
            return f"{shown} has a character that no name has; give patterns of names without directories"
        if len(pattern.encode(errors="surrogateescape")) > self.LENGTH_MAX:
            return f"{pattern[:20]!r}... has more than {self.LENGTH_MAX} bytes; give shorter patterns"
        if not pattern.strip("*"):
            return f"{shown} matches every name, so nothing would ever be published; give patterns of temporary names"
        if pattern.endswith(".lock"):
            return f"{shown} is for lock files, which are never staged; give patterns of temporary names"
        return None


@dataclass(frozen=True)
class OrNone(Generic[T]):
    """A value, or `none`."""

    value: Value[T]

    @property
    def metavar(self) -> str:
        return f"{self.value.metavar}|none"

    @property
    def unit(self) -> str:
        return self.value.unit

    def parse(self, text: str) -> T | None:
        if text == "none":
            return None
        try:
            return self.value.parse(text)
        except NoSuchValue as error:
            raise NoSuchValue(f"{error}, or none") from None

    def text(self, value: T | None) -> str:
        return "none" if value is None else self.value.text(value)


@dataclass(frozen=True)
class Several(Generic[T]):
    """A value that is given once for each; in TOML a list."""

    value: Value[T]

    @property
    def metavar(self) -> str:
        return self.value.metavar

    @property
    def unit(self) -> str:
        return self.value.unit

    def parse(self, text: str) -> tuple[T, ...]:
        """One of them."""
        return (self.value.parse(text),)

    def text(self, value: tuple[T, ...]) -> str:
        """They can't be given in one word."""
        return " ".join(map(self.value.text, value)) or "none"
