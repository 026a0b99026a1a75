"""One S3 server for the tests of a worker; each test begins with a clean record and no faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.s3 import S3, environment


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    server = S3()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def s3(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    """The server, and an environment that leads clients to its proxy."""
    for name, value in environment(s3_server.endpoint).items():
        monkeypatch.setenv(name, value)
    s3_server.fresh()
    return s3_server
