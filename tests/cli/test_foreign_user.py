"""A user who may nothing: one sentence each, with who may and what to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hcfs.frontends.front_ends import cannot_mount
from lab.harness.mounts import Mount
from lab.harness.users import hcfs_as_nobody


@pytest.mark.parametrize("words", [(), ("--lazy",)])
def test_umount(make_mount: Callable[..., Mount], words: tuple[str, ...]) -> None:
    mount = make_mount(size="64M")
    code, said = hcfs_as_nobody("umount", mount.dir, *words)
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith(f"hcfs: {mount.dir} was mounted by root, so this user can't unmount it, only root can: ")
    assert f"'hcfs umount {mount.dir}'" in said
    assert mount.status()["state"] == "ok"


def test_a_dead_mount_is_left_to_its_owner(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(size="64M")
    mount.kill()
    code, said = hcfs_as_nobody("mount", mount.source, mount.dir)
    assert (code, "was mounted by root" in said, said.count("\n")) == (1, True, 1)
    assert mount.mounted
    mount.umount()


def test_status_of_a_mount_that_is_closed(shared_mount: Mount) -> None:
    code, said = hcfs_as_nobody("status", shared_mount.dir)
    assert (code, "is closed to this user" in said, "allow_other" in said) == (1, True, True)


def test_devices_that_cannot_be_read_are_named(make_loop: Callable[..., Path]) -> None:
    loop = make_loop("64M")
    code, said = hcfs_as_nobody("info", "LABEL=absent")
    assert (code, "Permission denied, try as root" in said, said.count("\n")) == (1, True, 1)
    assert "no block device that can be read holds a store with LABEL=absent, and /dev/" in said
    assert os.path.exists(loop)


def test_the_fuse_device_is_blamed_only_when_it_is_to_blame(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refusal = str(cannot_mount("/mnt/hc", "user has no write access to mountpoint"))
    assert refusal.startswith("/mnt/hc can't be mounted at: user has no write access to mountpoint; ")
    assert "/dev/fuse" not in refusal
    monkeypatch.setattr("hcfs.frontends.front_ends.FUSE_DEVICE", str(tmp_path / "fuse"))
    refusal = str(cannot_mount("/mnt/hc", "fuse: device not found"))
    assert f"{tmp_path / 'fuse'} can't be opened (No such file or directory)" in refusal
