"""The variables of the environment that lead to an origin: put in order, and refused where the library can't take
them. It panics at what it doesn't expect in them, without a word of which it was."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from hcfs.options.schemes import SCHEMES

_ENDPOINTS = frozenset(
    ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_METADATA_ENDPOINT", "GOOGLE_BASE_URL")
)

_TEXTS = frozenset(("GOOGLE_SERVICE_ACCOUNT_KEY",))
"""JSON, which may have several lines."""


def tidy_environment() -> list[str]:
    """Take blanks and line ends off both ends of all values, as secrets mounted from files have them, and drop those
    that nothing is left of; the names of what was changed. For a process that has one thread yet."""
    changed = []
    ours = tuple(scheme.variables for scheme in SCHEMES if scheme.variables)
    for name, value in list(os.environ.items()):
        tidy = value.strip()
        if not name.startswith(ours) or (tidy == value and tidy):
            continue
        changed.append(name)
        if tidy:
            os.environ[name] = tidy
        else:
            del os.environ[name]
    return sorted(changed)


def problem_of_environment(variables: str) -> str | None:
    """Why an origin can't be asked with the variables that there are, in words that hold no value of them; None where
    they can be tried. variables: what the names of those begin with that lead there."""
    for name, value in sorted(os.environ.items()):
        if not name.startswith(variables):
            continue
        if name not in _TEXTS and any(ord(character) < 32 or ord(character) == 127 for character in value):
            return f"{name} in the daemon's environment has a line break or a control character in it; take it out"
        if name in _ENDPOINTS and (fault := _fault_of_endpoint(value)):
            return f"{name} in the daemon's environment {fault}; give it as https://HOST or http://HOST:PORT"
    return None


def _fault_of_endpoint(value: str) -> str:
    """What is wrong with it; "" for nothing. The value isn't said: it may hold a password."""
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "isn't a URL"
    if parts.scheme not in ("http", "https") or not value.lower().startswith(f"{parts.scheme}://"):
        return "has no http:// or https:// before its host"
    if not host:
        return "names no host"
    return "has a blank in it" if any(character.isspace() for character in value) else ""
