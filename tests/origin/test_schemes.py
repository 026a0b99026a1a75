"""Each kind of origin on a mount: listed, fetched, replaced since, refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hcfs.options.schemes import SCHEMES, Scheme
from lab.harness.actors import eventually, load
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.origins.clients import content, evict_all
from lab.harness.origins.server import OriginServer

Put = Callable[[str, bytes], None]


class Kind:
    """An origin of a kind that a test can write to: its URL, and how its objects are put there."""

    def __init__(self, url: str, put: Put) -> None:
        self.url = url
        self.put = put


def of_server(server: OriginServer, name: str) -> Kind:
    prefix = f"kinds-{name}"
    return Kind(server.url(prefix), lambda key, data: server.put(f"{prefix}/{key}", data))


def of_directory(path: Path) -> Kind:
    def put(key: str, data: bytes) -> None:
        (path / key).parent.mkdir(exist_ok=True, parents=True)
        (path / key).write_bytes(data)

    return Kind(str(path), put)


@pytest.fixture(params=SCHEMES, ids=lambda scheme: scheme.name)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """One for every row; a new one needs an entry here."""
    scheme: Scheme = request.param
    makers: dict[str, Callable[[], Kind]] = {
        "s3": lambda: of_server(request.getfixturevalue("s3"), scheme.name),
        "gs": lambda: of_server(request.getfixturevalue("gcs"), scheme.name),
        "file": lambda: of_directory(tmp_path / "origin"),
    }
    return makers[scheme.name]()


def test_each_kind(make_mount: Callable[..., Mount], kind: Kind) -> None:
    kind.put("d/model", content("first"))
    mount = make_mount(options=f"lookup_grace=0,allow_origin={kind.url}", size="64M")
    hcfs("ns", "create", mount.dir, "there", "--origin", kind.url, "--origin-changes", "revalidate=0")
    there = mount.dir / "there"
    assert os.listdir(there) == ["d"]
    assert load(there / "d" / "model") == content("first")
    kind.put("d/model", content("second", 700_002))
    eventually(lambda: load(there / "d" / "model") == content("second", 700_002), "it is replaced")
    evict_all(mount, there)
    assert load(there / "d" / "model") == content("second", 700_002)
    bad = hcfs("ns", "create", mount.dir, "bad", "--origin", f"{kind.url}?x", check=False)
    assert bad.returncode == 2
    assert "a character that no origin has" in bad.stderr
    assert not (mount.dir / "bad").exists()
