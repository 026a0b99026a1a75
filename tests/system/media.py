"""Media that carry something: others' filesystems and tables, and hcfs's own with changed superblocks."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import crc32c

from lab.harness.cli import hcfs


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
