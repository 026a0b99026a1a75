"""One server of each kind for the tests of a worker; each test begins with a clean record and no faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lab.harness.cli import hcfs
from lab.harness.images import create_image
from lab.harness.mounts import Mount
from lab.harness.origins.clients import ALLOWED, WARNINGS
from lab.harness.origins.gcs import Gcs
from lab.harness.origins.s3 import S3
from lab.harness.origins.server import OriginServer

Server = TypeVar("Server", bound=OriginServer)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    yield from _serving(S3())


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[Gcs]:
    yield from _serving(Gcs())


@pytest.fixture
def environment(s3_server: S3, gcs_server: Gcs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leads clients to the proxies; to both, since a mount of the test may be that of others too."""
    for name, value in (s3_server.environment() | gcs_server.environment()).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def s3(s3_server: S3, environment: None) -> S3:
    s3_server.fresh()
    return s3_server


@pytest.fixture
def gcs(gcs_server: Gcs, environment: None) -> Gcs:
    gcs_server.fresh()
    return gcs_server


@pytest.fixture(params=["s3", "gcs"])
def server(request: pytest.FixtureRequest) -> OriginServer:
    """Each of the two, for what both have in common."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, OriginServer)
    return found


def _serving(server: Server) -> Iterator[Server]:
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def shared_mounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Mount]]:
    """`shared_mounts("data_plane=on")`: one for each front end, for all tests that don't need their own and have a
    server."""
    mounts: dict[str, Mount] = {}

    def mount_by(front_end: str) -> Mount:
        if front_end not in mounts:
            directory = tmp_path_factory.mktemp("origins")
            source = create_image(directory / "origins.img", "256M")
            hcfs("mkfs", source)
            options = f"{front_end},lookup_grace=0,{ALLOWED},allow_origin={tmp_path_factory.getbasetemp()}"
            mounts[front_end] = Mount(source, directory / "mnt", options=options, allow_warnings=WARNINGS)
            mounts[front_end].mount()
        return mounts[front_end]

    with ExitStack() as stack:
        yield mount_by
        for mount in mounts.values():
            stack.callback(mount.close)  # each, whatever another one says


@pytest.fixture
def make_mount(make_mount: Callable[..., Mount], tmp_path: Path) -> Callable[..., Mount]:
    """As everywhere; the servers' buckets and the test's directory are allowed, unless it says what is."""
    usual = f"{ALLOWED},allow_origin={tmp_path}"

    def make(*args: Any, options: str = "", **more: Any) -> Mount:
        allowed = "" if "allow_origin=" in options else usual
        return make_mount(*args, options=",".join(filter(None, (options, allowed))), **more)

    return make


@pytest.fixture
def shared(shared_mounts: Callable[[str], Mount], s3: S3, gcs: Gcs) -> Mount:
    """A mount for all that don't need their own; lookups protect nothing from eviction."""
    return shared_mounts("data_plane=on")
