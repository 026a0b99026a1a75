"""Places for weight files: an ordinary filesystem, and an hcfs mount on a loop device."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.harness.cli import hcfs
from lab.harness.images import LoopDevice
from lab.harness.mounts import Mount

_names = itertools.count()


@pytest.fixture(scope="session")
def loop_mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    """One hcfs on a loop device for all tests here that read only good files."""
    directory = tmp_path_factory.mktemp("weights")
    loop = LoopDevice(directory, "1G")
    try:
        hcfs("mkfs", loop.path)
        mount = Mount(loop.path, directory / "mnt", options="lookup_grace=0")
        try:
            yield mount.mount()
        finally:
            mount.close()
    finally:
        loop.detach()


@pytest.fixture(params=["plain", "hcfs"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """An empty directory, on the filesystem under tmp_path and on hcfs."""
    if request.param == "plain":
        yield tmp_path
        return
    namespace = request.getfixturevalue("loop_mount").ns(f"w{next(_names)}")
    yield namespace
    subprocess.run(["rm", "-r", str(namespace)], check=True)
