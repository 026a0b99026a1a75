"""mkfs of files and devices that hold what isn't a filesystem: named, refused without --force, and left as they are."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from system.media import fingerprint, refused

from hcfs.device.signatures import contents
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

MIB = 1 << 20


def grown(path: Path, size: int = 16 * MIB) -> Path:
    """As large as an image, where it isn't already."""
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        if end < size:
            file.truncate(size)
    return path


def a_tar(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("f")
        member.size = 5
        archive.addfile(member, io.BytesIO(b"bytes"))


def a_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("create table t (x)")
    connection.commit()
    connection.close()


def a_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "x")


def a_checkpoint(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", b"\x80\x02}.")


def a_safetensors(path: Path, tensors: int = 1) -> None:
    head = json.dumps({f"t{n}": {"dtype": "U8", "shape": [1], "data_offsets": [n, n + 1]} for n in range(tensors)})
    path.write_bytes(len(head).to_bytes(8, "little") + head.encode() + bytes(tensors))


MAKERS: dict[str, Callable[[Path], object]] = {
    "tar": a_tar,
    "SQLite": a_database,
    "safetensors": a_safetensors,
    "safetensors file": lambda path: a_safetensors(path, 500),
    "zip archive": a_zip,
    "PyTorch": a_checkpoint,
    "gzip": lambda path: path.write_bytes(gzip.compress(b"x" * 100)),
    "zstd": lambda path: path.write_bytes(b"\x28\xb5\x2f\xfd" + b"x" * 100),
    "GGUF": lambda path: path.write_bytes(b"GGUF\3\0\0\0" + bytes(100)),
    "ELF": lambda path: shutil.copy(os.path.realpath(sys.executable), path),
    "pickle": lambda path: path.write_bytes(b"\x80\x04\x95" + bytes(100)),
    "data at offset 0": lambda path: path.write_bytes(b"Dear diary, "),
    "ext4": lambda path: subprocess.run(["mkfs.ext4", "-q", path, "16M"], check=True),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_what_somebody_made_is_named_and_left(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "precious"
    MAKERS[kind](path)
    grown(path)
    said = refused("mkfs", path, naming=kind, target=path)
    assert "--force" in said
    refused("mkfs", path, "--dry-run", naming=kind, target=path)
    refused("mkfs", path, "--size", "640M", naming=kind, target=path)
    done = hcfs("mkfs", path, "--json", check=False)
    assert (done.returncode, done.stdout) == (1, "")
    link = tmp_path / "link"
    link.symlink_to(path)
    refused("mkfs", link, naming=kind, target=path)
    hcfs("mkfs", path, "--force")
    hcfs("fsck", path)


@pytest.mark.parametrize("place", [1, 5 * MIB + 4097, 16 * MIB - 1])
def test_one_byte_anywhere_is_data(tmp_path: Path, place: int) -> None:
    """Between holes, in written zeros, and as the last byte."""
    path = tmp_path / "image"
    for zeros in (b"", b"\0" * (16 * MIB)):
        path.write_bytes(zeros)
        os.truncate(path, 16 * MIB)
        with path.open("r+b") as file:
            file.seek(place)
            file.write(b"x")
        refused("mkfs", path, naming=f"data at offset {place}", target=path)


def test_zeros_are_nobodys(tmp_path: Path) -> None:
    """A hole, written zeros, allocated and unwritten ones, and nothing at all."""
    for fill in (lambda f: f.truncate(16 * MIB), lambda f: f.write(b"\0" * 16 * MIB), lambda f: None):
        path = tmp_path / "image"
        with path.open("wb") as file:
            fill(file)
        hcfs("mkfs", path, "--size", "16M")
        path.unlink()
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 16 * MIB)
    hcfs("mkfs", path)


def test_holes_cost_nothing(tmp_path: Path) -> None:
    """Of 4 TB with a byte at their end one piece is read."""
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.seek((4 << 40) - 1)
        file.write(b"x")
    looks: list[int] = []
    found = contents(str(path), lambda done, total: looks.append(done))
    assert found is not None
    assert (found.offset, found.kind, len(looks)) == ((4 << 40) - 1, "data", 0)


@pytest.mark.parametrize("place", [0, 5000, 32 * MIB - 7])
def test_a_device_with_data_at_an_end(make_loop: Callable[..., Path], place: int) -> None:
    """As others' raw stores have it. What is in the middle alone is not looked for: that would take hours."""
    loop = make_loop("32M")
    with loop.open("r+b") as device:
        device.seek(16 * MIB)
        device.write(b"middle")
    hcfs("mkfs", loop, "--dry-run")
    with loop.open("r+b") as device:
        device.seek(place)
        device.write(b"raw")
    refused("mkfs", loop, naming=f"data at offset {place}", target=loop)
    hcfs("mkfs", loop, "--force")


def test_a_file_that_somebody_has_open(tmp_path: Path, make_image: Callable[..., Path]) -> None:
    """For writing, by another process: a virtual machine's new disk is all zeros, too. Not those that call hcfs."""
    image = make_image("16M")
    with image.open("r+b"):
        hcfs("mkfs", image, "--dry-run")
    with image.open("r+b") as file:
        other = subprocess.Popen(["sleep", "600"], stdout=file)
    try:
        assert "--force" in refused("mkfs", image, naming=f"process {other.pid} (sleep", target=image)
        hcfs("mkfs", image, "--force", "--dry-run")
    finally:
        other.kill()
        other.wait()
    with image.open("rb") as file:
        reader = subprocess.Popen(["sleep", "600"], stdin=file)
    try:
        hcfs("mkfs", image)
    finally:
        reader.kill()
        reader.wait()


def test_a_file_under_a_loop_device(tmp_path: Path, make_image: Callable[..., Path]) -> None:
    """Though nothing uses that at the moment."""
    image = make_image("16M")
    attach = ["losetup", "-f", "--show", image]
    loop = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
    try:
        assert "--force" in refused("mkfs", image, naming=loop, target=image)
    finally:
        subprocess.run(["losetup", "-d", loop], check=True)


def test_a_mounted_image(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(size="64M")
    for words in ((), ("--force",), ("--size", "80M"), ("--force", "--size", "80M"), ("--dry-run",)):
        done = hcfs("mkfs", mount.source, *words, check=False)
        assert (done.returncode, "in use" in done.stderr) == (1, True)
    assert mount.source.stat().st_size == 64 * MIB


@pytest.mark.parametrize("path", ["/proc/version", "/proc/self/status", "/sys/kernel/mm/transparent_hugepage/enabled"])
@pytest.mark.parametrize("words", [(), ("--size", "64M"), ("--size", "64M", "--force")])
def test_files_of_the_kernel(path: str, words: tuple[str, ...]) -> None:
    before = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    done = hcfs("mkfs", path, *words, check=False)
    assert done.returncode in (1, 2)
    *warning, line = done.stderr.splitlines()  # that there is no room
    assert len(warning) <= 1
    assert path in line
    assert "bug" not in done.stderr
    assert Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text() == before


def test_a_symlink_to_nothing(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "absent")
    said = refused("mkfs", link, "--size", "64M", naming="symlink")
    assert str(tmp_path / "absent") in said
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("kind", ["tar", "SQLite", "data at offset 0"])
def test_nothing_else_writes_to_what_is_no_store(tmp_path: Path, kind: str) -> None:
    path = grown_of(tmp_path, kind)
    directory = tmp_path / "mnt"
    directory.mkdir()
    before = fingerprint(path)
    for words in (("fsck", path, "--repair"), ("fsck", path, "--repair", "--data"), ("mount", path, directory)):
        done = hcfs(*words, check=False)
        assert done.returncode in (1, 8)
        (line,) = done.stderr.splitlines()
        assert "bug" not in line
    assert not os.path.ismount(directory)
    image = tmp_path / "store"
    hcfs("mkfs", image, "--size", "64M")
    done = hcfs("mount", image, directory, "--log", path, check=False)
    assert (done.returncode, "--log" in done.stderr) == (1, True)
    assert fingerprint(path) == before


def grown_of(directory: Path, kind: str) -> Path:
    path = directory / "precious"
    MAKERS[kind](path)
    with path.open("ab") as file:
        file.write(b"\0")
    return grown(path)
