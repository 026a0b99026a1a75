"""Secrets are kept out of what is said: one function, for every message and URL that leaves an origin's code."""

from __future__ import annotations

import os
import re
from urllib.parse import quote, quote_plus, unquote, urlsplit

HIDDEN = "***"

_USER = re.compile(r"\b(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://[^/\s?#\"'<>]*@")
"""What stands before the last `@` of a URL's authority."""

_QUERY = re.compile(r"(?P<url>\bhttps?://[^\s?\"'<>]*)\?[^\s\"'<>)]*", re.IGNORECASE)
"""The query of a server's URL: it may be a signature. In a key a question mark is one of its characters."""

_VARIABLES = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("GOOGLE_BEARER_TOKEN", "GOOGLE_SERVICE_ACCOUNT_KEY", "AWS_CONTAINER_AUTHORIZATION_TOKEN"),
)
"""Variables of the environment that are secrets as a whole."""

_URLS = re.compile(r"(ENDPOINT|ENDPOINT_URL|ENDPOINT_URL_[A-Z0-9_]+|BASE_URL|PROXY|CREDENTIALS_FULL_URI)$")
"""Variables that are URLs, which may have a user and a password."""

_SHORTEST = 4
"""Characters of a secret that is looked for by its text: a shorter one is in every sentence."""


def redacted(text: str) -> str:
    """The same without users, passwords and queries of URLs, and without what the daemon's environment has of
    credentials, as it is or percent-encoded."""
    text = _USER.sub(lambda found: f"{found['scheme']}://{HIDDEN}@", text)
    text = _QUERY.sub(lambda found: f"{found['url']}?{HIDDEN}", text)
    for secret in _secrets():
        text = text.replace(secret, HIDDEN)
    return text


def _secrets() -> list[str]:
    """What the environment has, the longest first, since one may be a part of another."""
    found: set[str] = set()
    for name, value in os.environ.items():
        if name in _VARIABLES:
            found.add(value.strip())
        elif _URLS.search(name.upper()):
            found |= _of_url(value.strip())
    found |= {form for secret in found for form in (quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1])}
    return sorted((secret for secret in found if len(secret) >= _SHORTEST), key=len, reverse=True)


def _of_url(url: str) -> set[str]:
    """User with password, password and query of a URL, also of one that lacks its scheme."""
    bare = url if "//" in url else f"//{url}"
    try:
        parts = urlsplit(bare)
    except ValueError:
        return {url}
    user, at, _ = parts.netloc.rpartition("@")
    password = user.partition(":")[2] or user
    found = {user, password, unquote(password)} if at else set()
    return found | ({parts.query} if parts.query else set())
