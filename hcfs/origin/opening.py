"""The client of an origin, by its URL."""

from __future__ import annotations

from hcfs.origin.client import OriginClient
from hcfs.origin.connection import local_directory
from hcfs.origin.directory import DirectoryClient
from hcfs.origin.object_store import ObjectStoreClient


def open_origin(url: str, *, fault: str | None = None) -> OriginClient:
    """Make the client of an origin. Nothing is asked yet. url: `s3://bucket/prefix`, `gs://bucket/prefix`,
    `file:///directory` or an absolute path. fault: why it can't be used, if that is known; then, and without the
    library that buckets need, everything that is asked is refused."""
    directory = None if fault is not None else local_directory(url)
    return ObjectStoreClient(url, fault=fault) if directory is None else DirectoryClient(url, directory)
