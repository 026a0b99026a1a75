"""The table against ext4, which says what is expected, and against hcfs, whose differences are rows of their own."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from posix_table import creation, errnos, links, names, permissions, times
from posix_table.table import ROWS, Row, in_process

from lab.harness.cli import hcfs
from lab.harness.images import LoopDevice, create_image
from lab.harness.mounts import Mount

MODULES = (creation, errnos, links, names, permissions, times)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def ext4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A mounted ext4."""
    directory = tmp_path_factory.mktemp("ext4")
    loop = LoopDevice(directory, "128M")
    try:
        subprocess.run(["mkfs.ext4", "-q", "-b", "4096", str(loop.path)], check=True)
        subprocess.run(["mount", str(loop.path), str(directory)], check=True)
        try:
            yield directory
        finally:
            subprocess.run(["umount", str(directory)], check=True)
    finally:
        loop.detach()


@pytest.fixture(scope="module")
def hcfs_mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A namespace of a mount that other users may use."""
    directory = tmp_path_factory.mktemp("hcfs")
    source = create_image(directory / "image.img", "256M")
    hcfs("mkfs", source)
    mount = Mount(source, directory / "mnt", options="allow_other,lookup_grace=0")
    try:
        yield mount.mount().ns()
    finally:
        mount.close()


def call(row: Row, directory: Path) -> object:
    """In a process of its own, in a fresh directory."""
    place = directory / f"row{next(_numbers)}"
    place.mkdir()

    def work() -> object:
        os.chdir(place)
        os.umask(0o022)
        return row.call()

    return in_process(work)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_ext4(row: Row, ext4: Path) -> None:
    assert call(row, ext4) == row.expected


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_hcfs(row: Row, hcfs_mount: Path) -> None:
    assert call(row, hcfs_mount) == row.hcfs, row.why
