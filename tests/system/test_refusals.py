"""What mkfs and mount refuse because it is somebody else's: its kind or holder is named, and not a byte written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from system.media import fingerprint, make, refused

from lab.harness.actors import put
from lab.harness.cli import hcfs
from lab.harness.images import create_image
from lab.harness.mounts import Mount

SIZES = {"xfs": "320M", "btrfs": "128M"}
"""Images as large as the tool demands; for the others, DEFAULT_SIZE."""
DEFAULT_SIZE = "32M"
KINDS = ["ext4", "xfs", "btrfs", "LVM", "LUKS", "LUKS1", "swap", "GPT", "MBR", "hcfs"]


@pytest.mark.parametrize("kind", KINDS)
def test_mkfs_refuses_what_others_made(make_image: Callable[..., Path], kind: str) -> None:
    """The type is named, also where no blkid is to be found; --dry-run and mount write nothing either."""
    image = make_image(SIZES.get(kind, DEFAULT_SIZE))
    make(kind, image)
    named = kind.rstrip("1")
    said = refused("mkfs", image, naming=named, target=image)
    assert "--force" in said
    assert str(image) in said
    before = fingerprint(image)
    done = hcfs("mkfs", image, check=False, env={"PATH": "/nonexistent"})
    assert done.returncode in (1, 2)
    assert named.lower() in done.stderr.lower()
    assert hcfs("mkfs", image, "--force", "--dry-run").returncode == 0
    assert fingerprint(image) == before


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "hcfs"])
def test_mount_refuses_what_others_made(make_image: Callable[..., Path], tmp_path: Path, kind: str) -> None:
    """It is no store of hcfs, and stays what it is."""
    image = make_image(SIZES.get(kind, DEFAULT_SIZE))
    make(kind, image)
    (tmp_path / "mnt").mkdir()
    refused("mount", image, tmp_path / "mnt", naming=str(image), target=image)
    assert not os.path.ismount(tmp_path / "mnt")


@pytest.mark.parametrize("kind", KINDS)
def test_force_overwrites_it(make_image: Callable[..., Path], kind: str) -> None:
    """With --force the old signature is gone, at both ends, for other tools too."""
    image = make_image(SIZES.get(kind, DEFAULT_SIZE))
    make(kind, image)
    hcfs("mkfs", image, "--force")
    known = subprocess.run(["wipefs", "--no-act", "--parsable", image], check=True, capture_output=True, text=True)
    assert [line for line in known.stdout.splitlines() if not line.startswith("#")] == []
    hcfs("fsck", image)


def test_mkfs_on_a_device_with_a_signature(make_loop: Callable[..., Path]) -> None:
    """The same on a block device."""
    device = make_loop("64M")
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    refused("mkfs", device, naming="ext4", target=device)


@pytest.fixture
def mounted_ext4(make_loop: Callable[..., Path], tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A loop device and where its ext4 is mounted."""
    device, directory = make_loop("64M"), tmp_path / "ext4"
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    directory.mkdir()
    # Read-only, so that ext4's own background work doesn't change it.
    subprocess.run(["mount", "-o", "ro", device, directory], check=True)
    yield device, directory
    subprocess.run(["umount", directory], check=True)


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_mounted_device(mounted_ext4: tuple[Path, Path], tmp_path: Path, force: tuple[str, ...]) -> None:
    """Refused always, and the message says where it is mounted."""
    device, directory = mounted_ext4
    (tmp_path / "mnt").mkdir()
    refused("mkfs", device, *force, naming=str(directory), target=device)
    refused("mount", device, tmp_path / "mnt", naming=str(directory), target=device)


def test_a_mounted_devices_backing_file(mounted_ext4: tuple[Path, Path]) -> None:
    """The file under a loop device in use is in use, too."""
    device, _ = mounted_ext4
    listed = subprocess.run(["losetup", "-n", "-O", "BACK-FILE", device], check=True, capture_output=True, text=True)
    refused("mkfs", Path(listed.stdout.strip()), "--force", naming="loop", target=device)


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_held_device(make_loop: Callable[..., Path], force: tuple[str, ...]) -> None:
    """Opened exclusively by another program: refused, and the holder is named."""
    device = make_loop("64M")
    fd = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        said = refused("mkfs", device, *force, naming=str(device), target=device)
        assert str(os.getpid()) in said
    finally:
        os.close(fd)
    hcfs("mkfs", device)


@pytest.mark.parametrize("loop", [False, True])
def test_a_mounted_store(make_mount: Callable[..., Mount], tmp_path: Path, loop: bool) -> None:
    """By its path, by a symlink, by a hard link or another loop device over its file: the daemon that holds it is
    named.
    """
    mount = make_mount(size="64M", loop=loop)
    put(mount.ns() / "x", b"x")
    other = tmp_path / "other"
    other.mkdir()
    paths = [mount.source, tmp_path / "symlink"]
    paths[1].symlink_to(mount.source)
    if not loop:
        paths.append(tmp_path / "hard")
        os.link(mount.source, paths[2])
    for path in paths:
        for words in (("mkfs", path), ("mkfs", path, "--force")):
            said = refused(*words, naming=str(path))
            assert str(mount.dir) in said or str(mount.pid) in said
        assert str(mount.pid) in refused("mount", path, other, naming=str(path))
    assert not os.path.ismount(other)
    assert (mount.dir / "kv" / "x").read_bytes() == b"x"
    mount.umount()
    hcfs("fsck", mount.source, "--data")


def test_another_loop_device_over_a_mounted_image(make_mount: Callable[..., Mount], tmp_path: Path) -> None:
    """The image is locked by the daemon; a device made of the same file isn't free either."""
    mount = make_mount(size="64M")
    listed = subprocess.run(["losetup", "-f", "--show", mount.source], check=True, capture_output=True, text=True)
    device = Path(listed.stdout.strip())
    try:
        (tmp_path / "other").mkdir()
        refused("mkfs", device, "--force", naming=str(device))
        refused("mount", device, tmp_path / "other", naming=str(device))
    finally:
        subprocess.run(["losetup", "-d", device], check=True)
    mount.umount()
    hcfs("fsck", mount.source)


def test_what_cannot_be_a_target(tmp_path: Path) -> None:
    """Absent, a directory, a character device, too small, an odd size: each says what is the matter."""
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    for words in (("mkfs",), ("info",), ("inspect",), ("mount",)):
        rest = {"mount": (mnt,), "inspect": ("superblock",)}.get(words[0], ())
        refused(*words, tmp_path / "absent", *rest, naming="absent")
        refused(*words, tmp_path, *rest, naming=str(tmp_path))
        refused(*words, "/dev/null", *rest, naming="/dev/null")
    small = create_image(tmp_path / "small", 64 << 10)
    refused("mkfs", small, naming=str(small), target=small)
    assert not (tmp_path / "absent").exists()
