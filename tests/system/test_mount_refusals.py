"""What is no store to mount, or not now: one clear sentence, exit code 1 or 2, and not a byte written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from system.media import fingerprint, patch_superblocks, refused

from lab.harness.actors import Actor, errno_of, eventually, put
from lab.harness.cli import hcfs
from lab.harness.images import LoopDevice
from lab.harness.mounts import Mount

INCOMPAT = 32
"""Offset of the incompat feature word in a superblock, docs/format.md."""


def refused_by_readers(image: Path, directory: Path, naming: str) -> None:
    """mount, info and inspect refuse with that word; fsck can't run, or finds errors."""
    directory.mkdir(exist_ok=True)
    refused("mount", image, directory, naming=naming, target=image)
    refused("info", image, naming=naming, target=image)
    refused("inspect", image, "superblock", naming=naming, target=image)
    before = fingerprint(image)
    done = hcfs("fsck", image, check=False)
    assert done.returncode in (4, 8)
    assert "Traceback" not in done.stderr
    assert fingerprint(image) == before
    assert not os.path.ismount(directory)


@pytest.mark.parametrize("filler", ["zeros", "text", "random", "empty", "short"])
def test_a_foreign_file(tmp_path: Path, filler: str) -> None:
    """No store: said so, with the file's name."""
    image = tmp_path / "foreign"
    sizes = {"empty": 0, "short": 100}
    size = sizes.get(filler, 16 << 20)
    content = {"zeros": bytes(size), "random": os.urandom(size)}.get(filler, (b"some text\n" * (size // 10 + 1))[:size])
    image.write_bytes(content)
    refused_by_readers(image, tmp_path / "mnt", str(image))


def test_a_truncated_image(make_image: Callable[..., Path], tmp_path: Path) -> None:
    """Cut anywhere: it is smaller than its superblock says, and that is what is said."""
    image = make_image("64M")
    hcfs("mkfs", image)
    for size in ((64 << 20) - 1, 48 << 20, 4096):
        os.truncate(image, size)
        refused_by_readers(image, tmp_path / "mnt", str(image))


def test_a_device_smaller_than_its_superblock_says(make_image: Callable[..., Path], tmp_path: Path) -> None:
    """A store copied to a smaller device. Both sizes are in the sentence; on one large enough it mounts."""
    image = make_image("64M")
    hcfs("mkfs", image)
    loop = LoopDevice(tmp_path, "32M")
    try:
        with image.open("rb") as source, loop.path.open("r+b") as target:
            target.write(source.read(32 << 20))
            os.fsync(target.fileno())
        (tmp_path / "mnt").mkdir()
        said = refused("mount", loop.path, tmp_path / "mnt", naming="superblock", target=loop.path)
        assert str(loop.path) in said
        assert str(32 << 20) in said
        assert str(64 << 20) in said
    finally:
        loop.detach()


def test_unknown_incompatible_features(make_image: Callable[..., Path], tmp_path: Path) -> None:
    """Refused, with the bits and the remedy; it is still recognised as hcfs by mkfs."""
    image = make_image("64M")
    hcfs("mkfs", image)
    patch_superblocks(image, INCOMPAT, (1 << 40 | 1).to_bytes(8, "little"))
    refused_by_readers(image, tmp_path / "mnt", "incompat")
    said = refused("mount", image, tmp_path / "mnt", naming="newer", target=image)
    assert "0x10000000001" in said
    refused("mkfs", image, naming="hcfs", target=image)


def test_unknown_compatible_features(make_image: Callable[..., Path], make_mount: Callable[..., Mount]) -> None:
    """Compat bits are ignored; with ro-compat bits it has to be mounted read-only, which is said."""
    image = make_image("64M")
    hcfs("mkfs", image)
    mount = make_mount(image, allow_warnings=("read-only", "ro_compat", "ro-compat"))
    put(mount.ns() / "x", b"x")
    mount.umount()
    patch_superblocks(image, 16, (1 << 50).to_bytes(8, "little"))
    mount.mount()
    assert mount.status()["state"] == "ok"
    put(mount.ns() / "y", b"y")
    mount.umount()
    patch_superblocks(image, 24, (1 << 7).to_bytes(8, "little"))
    refused("mount", image, mount.dir, naming="ro-compat bits 0x80", target=image)
    mount.mount("ro")
    assert mount.status()["state"] == "read-only"
    assert (mount.dir / "kv" / "y").read_bytes() == b"y"
    assert errno_of(put, mount.dir / "kv" / "z", b"z") == "EROFS"


def test_another_format_version(make_image: Callable[..., Path], tmp_path: Path) -> None:
    """A store of a later hcfs: refused, the version named."""
    image = make_image("64M")
    hcfs("mkfs", image)
    patch_superblocks(image, 8, (7).to_bytes(4, "little"))
    refused_by_readers(image, tmp_path / "mnt", "version 7")


def test_one_damaged_superblock(
    make_image: Callable[..., Path], make_mount: Callable[..., Mount], tmp_path: Path
) -> None:
    """The other end's copy serves; with both gone it is a foreign file."""
    image = make_image("64M")
    hcfs("mkfs", image)
    for place in (0, (64 << 20) - 4096):
        with image.open("r+b") as file:
            file.seek(place)
            block = file.read(4096)
            file.seek(place)
            file.write(bytes(4096))
        mount = make_mount(image, allow_warnings=("superblock",))
        put(mount.ns() / "x", b"x")
        mount.umount()
        with image.open("r+b") as file:
            file.seek(place)
            file.write(block)
    with image.open("r+b") as file:
        for place in (0, (64 << 20) - 4096):
            file.seek(place)
            file.write(bytes(4096))
    (tmp_path / "mnt").mkdir()
    refused("mount", image, tmp_path / "mnt", naming=str(image), target=image)


@pytest.mark.parametrize(
    ("words", "naming"),
    [
        (("-o", "nosuchoption"), "nosuchoption"),
        (("-o", "commit_interval=soon"), "commit_interval"),
        (("-o", "commit_interval=-1"), "commit_interval"),
        (("-o", "staging_ttl="), "staging_ttl"),
        (("-o", "high_watermark=2"), "high_watermark"),
        (("-o", "high_watermark=0.5,low_watermark=0.6"), "low_watermark"),
        (("-o", "lookup_grace=x"), "lookup_grace"),
        (("--memory", "lots"), "memory"),
        (("--memory", "1"), "memory"),
        (("--config", "/nonexistent.toml"), "/nonexistent.toml"),
    ],
)
def test_mount_options(make_image: Callable[..., Path], tmp_path: Path, words: tuple[str, ...], naming: str) -> None:
    """Unknown options and impossible values are errors of usage, named, before anything is mounted."""
    image = make_image("64M")
    hcfs("mkfs", image)
    (tmp_path / "mnt").mkdir()
    before = fingerprint(image)
    done = hcfs("mount", image, tmp_path / "mnt", *words, check=False)
    assert done.returncode in (1, 2)
    assert naming in done.stderr
    assert "Traceback" not in done.stderr
    assert not os.path.ismount(tmp_path / "mnt")
    assert fingerprint(image) == before


def test_mount_points(make_mount: Callable[..., Mount], make_image: Callable[..., Path], tmp_path: Path) -> None:
    """Absent, a file, or already a mount of hcfs: each is named."""
    image = make_image("64M")
    hcfs("mkfs", image)
    refused("mount", image, tmp_path / "absent", naming="absent", target=image)
    (tmp_path / "file").write_bytes(b"")
    refused("mount", image, tmp_path / "file", naming=str(tmp_path / "file"), target=image)
    mount = make_mount(size="64M")
    refused("mount", image, mount.dir, naming=str(mount.dir), target=image)
    assert mount.status()["state"] == "ok"


@pytest.mark.parametrize("command", ["status", "umount", "keys", "lmcache-config", "ns"])
def test_commands_on_a_directory_that_is_no_mount(tmp_path: Path, command: str) -> None:
    """One sentence with the directory's name."""
    words = {"keys": (tmp_path, "kv"), "lmcache-config": (tmp_path, "kv"), "ns": ("list", tmp_path)}
    refused(command, *words.get(command, (tmp_path,)), naming=str(tmp_path))


def test_mount_by_uuid_and_label(make_loop: Callable[..., Path], tmp_path: Path) -> None:
    """One that no device has is refused, by its own words."""
    (tmp_path / "mnt").mkdir()
    for source in ("UUID=01234567-89ab-cdef-0123-456789abcdef", "LABEL=no-such-label-anywhere"):
        refused("mount", source, tmp_path / "mnt", naming=source.partition("=")[2])


def test_mounted_by_its_uuid_or_label(make_loop: Callable[..., Path], make_mount: Callable[..., Mount]) -> None:
    """Device names swap at boot; a UUID and a label don't."""
    device = make_loop("64M")
    label = f"label-{os.getpid()}"
    made = json.loads(hcfs("mkfs", device, "--label", label, "--json").stdout)
    mount = make_mount(device)
    put(mount.ns() / "x", b"x")
    for source in (f"UUID={made['uuid']}", f"LABEL={label}"):
        mount.umount()
        hcfs("mount", source, mount.dir)
        assert (mount.dir / "kv" / "x").read_bytes() == b"x"
        assert mount.status()["label"] == label


def test_a_busy_mount_is_not_unmounted(make_mount: Callable[..., Mount]) -> None:
    """The process that uses it is named; afterwards it goes; lazily it goes at once, and ends with its last user."""
    mount = make_mount(size="64M")
    put(mount.ns() / "x", b"x")
    with Actor() as user:
        fd = user.open(mount.dir / "kv" / "x", os.O_RDONLY)
        assert str(user.pid) in refused("umount", mount.dir, naming=str(mount.dir))
        assert user.pread(fd, 10, 0) == b"x"
        pid = mount.pid
        mount.umount("--lazy")
        assert not os.path.ismount(mount.dir)
        assert user.pread(fd, 10, 0) == b"x"
        user.close(fd)
        eventually(lambda: not Path(f"/proc/{pid}").exists(), "the daemon ends with its last user")
    mount.mount()
    assert (mount.dir / "kv" / "x").read_bytes() == b"x"
