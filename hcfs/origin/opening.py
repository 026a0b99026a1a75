"""The client of an origin, by its URL."""

from __future__ import annotations

from hcfs.origin.client import OriginClient
from hcfs.origin.connection import local_directory
from hcfs.origin.directory import DirectoryClient
from hcfs.origin.object_store import ObjectStoreClient


def open_origin(url: str) -> OriginClient:
    """url: `s3://bucket/prefix`, `gs://bucket/prefix`, `file:///directory` or an absolute path. Nothing is asked yet.
    UsageError without the library that buckets need."""
    directory = local_directory(url)
    return ObjectStoreClient(url) if directory is None else DirectoryClient(url, directory)
