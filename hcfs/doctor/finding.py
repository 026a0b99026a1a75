"""What one check found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's."""

    check: str
    """What was looked at; several findings may share it."""
    verdict: Verdict
    """With a warning it works, and costs something that the detail names. Failed: a mount doesn't work so, or loses
    what it should keep."""
    detail: str
    """What was found."""
    remedy: str | None = None
    """What to do about it; None where all is well."""


Findings = Iterator[Finding]


def ok(check: str, detail: str) -> Finding:
    """Nothing to do."""
    return Finding(check, "ok", detail)


def warning(check: str, detail: str, remedy: str) -> Finding:
    """It works, at a cost."""
    return Finding(check, "warning", detail, remedy)


def failed(check: str, detail: str, remedy: str) -> Finding:
    """It doesn't work."""
    return Finding(check, "failed", detail, remedy)
