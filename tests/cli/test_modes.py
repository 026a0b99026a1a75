"""Images and logs have what tenants wrote, and the names of their files: others can't read them, whatever the umask."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.harness.actors import errno_of
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount


def mode(path: Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def hcfs_with(umask: int, *words: str | Path) -> None:
    command = [sys.executable, "-m", "hcfs", *map(str, words)]
    subprocess.run(command, umask=umask, check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_a_new_image_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    image = tmp_path / "image"
    hcfs_with(umask, "mkfs", image, "--size", "16M")
    assert mode(image) == 0o600
    os.chmod(image, 0o644)
    hcfs_with(umask, "mkfs", image, "--size", "32M", "--force")
    assert mode(image) == 0o644


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_a_log_is_its_owners_and_groups(make_image: Callable[..., Path], tmp_path: Path, umask: int) -> None:
    """Also the one that takes the place of a log that was moved; one that is there keeps its mode."""
    image, log, moved = make_image("64M"), tmp_path / "logs" / "mnt.log", tmp_path / "moved"
    hcfs("mkfs", image)
    mount = Mount(image, tmp_path / "mnt")
    log.parent.mkdir()
    try:
        hcfs_with(umask, "mount", image, mount.dir, "--log", log)
        assert mode(log) == 0o640
        log.rename(moved)
        there = mount.ns()
        assert errno_of(os.setxattr, there, "user.hcfs.origin", b"s3://refused") == "EACCES"  # which is logged
        assert "s3://refused" in log.read_text()
        assert mode(log) == 0o640
        mount.umount()
        log.chmod(0o604)
        hcfs_with(umask, "mount", image, mount.dir, "--log", log)
        assert mode(log) == 0o604
    finally:
        mount.close()
