"""The Python packages that hcfs itself needs, in this environment."""

from __future__ import annotations

import re
from collections import defaultdict
from importlib import metadata

from hcfs.doctor.finding import Findings, failed, ok

_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^]]*\])?\s*(?:(>=|==)\s*([\w.]+))?(?:;\s*extra == ['\"]([\w-]+)['\"])?\s*")
_FOR_USERS = ("origins", "weights")
"""Extras that a user of the command, or a daemon, may want here."""


def packages() -> Findings:
    """Whether each is there, in a version that hcfs names, by the metadata that pip left."""
    try:
        requirements = metadata.requires("hcfs") or []
    except metadata.PackageNotFoundError:
        yield failed("packages", "hcfs isn't installed in this environment", "install it with pip")
        return
    lacking: dict[str, list[str]] = defaultdict(list)
    found: dict[str, list[str]] = defaultdict(list)
    for requirement in requirements:
        match = _REQUIREMENT.fullmatch(requirement)
        if match is None:
            continue
        name, how, bound, extra = match.groups()
        version = _version(name)
        right = version is not None and (how is None or fits(version, how, bound))
        if right:
            found[extra or ""].append(f"{name} {version}")
        else:
            lacking[extra or ""].append(f"{name}{how or ''}{bound or ''} (here: {version or 'none'})")
    if lacking[""]:
        yield failed("packages", f"missing or too old: {', '.join(lacking[''])}", "run 'pip install --upgrade hcfs'")
    else:
        yield ok("packages", ", ".join(found[""]))
    for extra in _FOR_USERS:
        if lacking[extra]:
            text = f"not all installed: {', '.join(lacking[extra])}; needed only for what docs/dependencies.md says"
            yield ok(f"extra {extra}", f"{text}; 'pip install hcfs[{extra}]'")
        elif found[extra]:
            yield ok(f"extra {extra}", ", ".join(found[extra]))
        else:
            # An installation from sources keeps the requirements of the day it was made.
            yield ok(f"extra {extra}", f"not known to this installation; 'pip install hcfs[{extra}]'")


def fits(version: str, how: str, bound: str) -> bool:
    """Whether a version is the bound (`==`) or not before it (`>=`), by its leading numbers."""
    return _numbers(version) == _numbers(bound) if how == "==" else _numbers(version) >= _numbers(bound)


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
