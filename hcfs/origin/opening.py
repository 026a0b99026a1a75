"""The client of an origin, by its URL."""

from __future__ import annotations

from hcfs.options.schemes import load, scheme_of
from hcfs.origin.client import OriginClient
from hcfs.origin.refused_client import RefusedClient


def open_origin(url: str, *, fault: str | None = None) -> OriginClient:
    """The client of an origin, by its URL. Nothing is asked yet. fault: why it can't be used, if that is known; then,
    and without the library that it needs, everything that is asked is refused."""
    scheme = scheme_of(url)
    problem = fault or ("there are no such origins" if scheme is None else scheme.missing)
    if problem is not None or scheme is None:
        return RefusedClient(f"{url}: {problem}")
    client: OriginClient = load(scheme.client)(url)
    return client


def problem_of_client(client: OriginClient) -> str | None:
    """Why nothing can be asked of an origin, as far as that is known without asking; None where it can be tried, or
    where its client can't tell."""
    problem: str | None = getattr(client, "problem", None)
    return problem
