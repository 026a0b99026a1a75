"""One S3 server for the tests of a worker; each test begins with a clean record and no faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from harness.cli import hcfs
from harness.images import create_image
from harness.mounts import Mount
from harness.s3 import S3, environment
from origin.clients import WARNINGS


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


@pytest.fixture(scope="session")
def shared_mounts(s3_server: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Mount]]:
    """`shared_mounts("data_plane=on")`: one for each front end, for all tests that don't need their own."""
    mounts: dict[str, Mount] = {}

    def mount_by(front_end: str) -> Mount:
        if front_end not in mounts:
            directory = tmp_path_factory.mktemp("origins")
            source = create_image(directory / "origins.img", "256M")
            hcfs("mkfs", source)
            options = f"{front_end},lookup_grace=0"
            mounts[front_end] = Mount(source, directory / "mnt", options=options, allow_warnings=WARNINGS)
            with pytest.MonkeyPatch.context() as patch:
                for name, value in environment(s3_server.endpoint).items():
                    patch.setenv(name, value)
                mounts[front_end].mount()
        return mounts[front_end]

    yield mount_by
    for mount in mounts.values():
        mount.close()


@pytest.fixture
def shared(shared_mounts: Callable[[str], Mount], s3: S3) -> Mount:
    """A mount for all that don't need their own; lookups protect nothing from eviction."""
    return shared_mounts("data_plane=on")
