"""What mkfs and mount refuse: one clear sentence, exit code 1 or 2, and not a byte written."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import crc32c
import pytest
from harness.cli import hcfs
from harness.images import LoopDevice, create_image
from harness.mounts import Mount
from mount.actors import Actor, errno_of, eventually, put

INCOMPAT = 32
"""Offset of the incompat feature word in a superblock, docs/format.md."""


def data_ranges(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Start and end of what isn't a hole; a block device has none."""
    if stat.S_ISBLK(os.fstat(fd).st_mode):
        yield 0, size
        return
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError:
            return
        end = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, end


def fingerprint(target: Path) -> str:
    """A digest of the whole image or device, holes as holes: zeros written into one would show."""
    digest = hashlib.blake2b()
    fd = os.open(target, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        size = os.lseek(fd, 0, os.SEEK_END)
        digest.update(b"%d" % size)
        for start, end in data_ranges(fd, size):
            digest.update(b"data at %d" % start)
            for place in range(start, end, 1 << 20):
                digest.update(os.pread(fd, min(1 << 20, end - place), place))
    finally:
        os.close(fd)
    return digest.hexdigest()


def refused(*words: str | Path, naming: str, target: Path | None = None) -> str:
    """The command fails with 1 or 2 and one sentence on stderr that holds `naming`; the target stays as it is."""
    before = fingerprint(target) if target is not None else ""
    done = hcfs(*words, check=False)
    said = done.stderr.strip()
    assert done.returncode in (1, 2), f"exit code {done.returncode}: {said}"
    assert len(said.splitlines()) == 1, said
    assert naming.lower() in said.lower(), said
    assert "Traceback" not in said + done.stdout
    if target is not None:
        assert fingerprint(target) == before
    return said


def make(kind: str, path: Path) -> None:
    """Put what other programs make of a medium at `path`."""
    commands = {
        "ext4": ["mkfs.ext4", "-q", "-F"],
        "xfs": ["mkfs.xfs", "-q", "-f"],
        "btrfs": ["mkfs.btrfs", "-q", "-f"],
        "swap": ["mkswap"],
        "LUKS": ["cryptsetup", "luksFormat", "-q", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"],
        "LUKS1": ["cryptsetup", "luksFormat", "-q", "--type", "luks1", "--pbkdf-force-iterations", "1000"],
        "LVM": ["pvcreate", "-q", "-ff", "-y"],
        "GPT": ["sgdisk", "-n", "1:2048:4095"],
        "MBR": ["sfdisk", "-q"],
    }
    if kind == "hcfs":
        hcfs("mkfs", path)
        return
    text = {"LUKS": "secret", "LUKS1": "secret", "MBR": "label: dos\n2048,4096,83\n"}.get(kind)
    with ExitStack() as stack:
        if kind == "LVM":
            # pvcreate takes block devices only, and none outside /dev.
            listed = subprocess.run(["losetup", "-f", "--show", path], check=True, capture_output=True, text=True)
            loop = listed.stdout.strip()
            stack.callback(subprocess.run, ["losetup", "-d", loop], check=True)
            devices = ["--devices", loop, "--config", 'devices{use_devicesfile=0 filter=["a|.*|"]}']
            subprocess.run([*commands[kind], *devices, loop], check=True, capture_output=True)
        else:
            subprocess.run([*commands[kind], path], input=text, text=True, check=True, capture_output=True)


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


def patch_superblocks(image: Path, offset: int, data: bytes) -> None:
    """Change bytes of both superblocks and make their checksums right again."""
    with image.open("r+b") as file:
        for place in (0, os.fstat(file.fileno()).st_size - 4096):
            file.seek(place)
            block = bytearray(file.read(4096))
            assert block[:4] == b"HCFS"
            assert crc32c.crc32c(block[:4092]) == int.from_bytes(block[4092:], "little")
            block[offset : offset + len(data)] = data
            block[4092:] = crc32c.crc32c(block[:4092]).to_bytes(4, "little")
            file.seek(place)
            file.write(block)


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
