"""Every kind of signature, made by the real tools where these are at hand, and compared with what blkid sees."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from device.conftest import run

from hcfs.device import DeviceNotFound
from hcfs.device.signatures import Medium, Signature, probe, scan
from hcfs.device.signatures import wipefs as wipefs_module

MIB = 1 << 20


def make_luks(path: Path, version: int) -> None:
    cost = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"]
    label = ["--label=secret"] if version == 2 else []
    command = ["cryptsetup", "luksFormat", "-q", f"--type=luks{version}", *cost, *label, str(path), "-"]
    subprocess.run(command, input=b"passphrase", check=True, capture_output=True)


def make_mbr(path: Path) -> None:
    subprocess.run(["sfdisk", str(path)], input=b"label: dos\n,1M\n", check=True, capture_output=True)


FORMATTERS: dict[str, tuple[Callable[[Path], object], set[str], str | None]] = {
    # name: (formatter, kinds found, label of the first)
    "ext2": (lambda path: run("mke2fs", "-q", "-t", "ext2", "-L", "scratch", path), {"ext2"}, "scratch"),
    "ext3": (lambda path: run("mke2fs", "-q", "-t", "ext3", path), {"ext3"}, None),
    "ext4": (lambda path: run("mkfs.ext4", "-q", "-L", "scratch", path), {"ext4"}, "scratch"),
    "jbd": (lambda path: run("mke2fs", "-q", "-O", "journal_dev", path), {"jbd"}, None),
    "xfs": (lambda path: run("mkfs.xfs", "-q", "-L", "pool", path), {"xfs"}, "pool"),
    "btrfs": (lambda path: run("mkfs.btrfs", "-q", "-L", "a b", path), {"btrfs"}, "a b"),
    "luks1": (lambda path: make_luks(path, 1), {"crypto_LUKS"}, None),
    "luks2": (lambda path: make_luks(path, 2), {"crypto_LUKS"}, "secret"),
    "swap": (lambda path: run("mkswap", "-L", "page", path), {"swap"}, "page"),
    "swap64k": (lambda path: run("mkswap", "--pagesize=65536", path), {"swap"}, None),
    "gpt": (lambda path: run("sgdisk", "-n", "1:2048:+8M", path), {"gpt", "PMBR"}, None),
    "dos": (make_mbr, {"dos"}, None),
    "fat12": (lambda path: run("mkfs.vfat", "-F", "12", "-s", "128", "-n", "EFI", path), {"vfat"}, "EFI"),
    "fat16": (lambda path: run("mkfs.vfat", "-F", "16", path), {"vfat"}, None),
    "fat32": (lambda path: run("mkfs.vfat", "-F", "32", "-n", "BOOT", path), {"vfat"}, "BOOT"),
}

SIZES = {"xfs": "320M", "btrfs": "128M", "fat12": "16M"}
"""Where the tools want more, or less, than the other formats get."""


@pytest.fixture(params=sorted(FORMATTERS))
def formatted(request: pytest.FixtureRequest, make_image: Any) -> tuple[Path, set[str], str | None]:
    formatter, kinds, label = FORMATTERS[request.param]
    image: Path = make_image(SIZES.get(request.param, "64M"))
    formatter(image)
    return image, kinds, label


def own(path: Path) -> list[Signature]:
    """What the table finds by itself."""
    with path.open("rb") as file:
        return scan(Medium(file.seek(0, 2), lambda offset, length: os.pread(file.fileno(), length, offset)))


def blkid_types(path: object) -> set[str]:
    """The TYPE and PTTYPE of `blkid -p`."""
    answer = subprocess.run(["blkid", "-p", "-o", "export", str(path)], capture_output=True, text=True).stdout
    pairs = dict(line.split("=", 1) for line in answer.splitlines() if "=" in line)
    return {pairs[key] for key in ("TYPE", "PTTYPE") if key in pairs}


def wipefs_signatures(path: object) -> set[tuple[int, str]]:
    """Offset and kind of what wipefs lists."""
    answer = run("wipefs", "--noheadings", "-p", path)
    fields = [line.split(",") for line in answer.splitlines() if not line.startswith("#")]
    return {(int(offset, 16), kind) for offset, _uuid, _label, kind in fields}


def test_real_formats_are_found_and_named(formatted: tuple[Path, set[str], str | None]) -> None:
    image, kinds, label = formatted
    found = own(image)
    assert {signature.kind for signature in found} == kinds
    assert found[0].label == label


def test_all_that_blkid_and_wipefs_see_is_found(formatted: tuple[Path, set[str], str | None]) -> None:
    image, _, _ = formatted
    found = own(image)
    assert blkid_types(image) <= {signature.kind for signature in found}
    # FAT has no magic number of its own: wipefs lists each of the places that it judged by.
    listed = {(offset, kind) for offset, kind in wipefs_signatures(image) if kind != "vfat"}
    assert listed <= {(signature.offset, signature.kind) for signature in found}


def test_they_are_found_without_util_linux(
    formatted: tuple[Path, set[str], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    image, kinds, _ = formatted
    monkeypatch.setattr(wipefs_module, "_SEARCH_PATH", "/nonexistent")
    assert {signature.kind for signature in probe(str(image))} == kinds


@pytest.mark.parametrize("sector", [512, 4096])
def test_an_lvm_physical_volume_is_found(make_loop: Any, sector: int) -> None:
    device = make_loop("64M", sector=sector)
    devices = f'devices {{ filter = [ "a|^{device}$|", "r|.*|" ] }}'
    run("pvcreate", "-q", "--config", devices, device)
    assert [signature.kind for signature in own(device)] == ["LVM2_member"]
    assert blkid_types(device) == {"LVM2_member"}


@pytest.mark.parametrize("sector", [512, 4096])
def test_both_headers_of_a_gpt_are_found_in_either_sector_size(make_loop: Any, sector: int) -> None:
    device = make_loop("64M", sector=sector)
    run("sgdisk", "-n", "1:2048:+8M", device)
    assert [(signature.kind, signature.offset) for signature in probe(str(device))] == [
        ("PMBR", 510),
        ("gpt", sector),
        ("gpt", 64 * MIB - sector),
    ]
    run("dd", "if=/dev/zero", f"of={device}", f"bs={sector}", "count=2", "conv=notrunc")
    assert [(signature.kind, signature.offset) for signature in probe(str(device))] == [("gpt", 64 * MIB - sector)]


def test_the_second_luks_header_is_found_when_the_first_is_gone(make_image: Any) -> None:
    image: Path = make_image("64M")
    make_luks(image, 2)
    with image.open("r+b") as file:
        file.write(bytes(4096))
    assert [(signature.kind, signature.label) for signature in own(image)] == [("crypto_LUKS", "secret")]


# Formats whose tools aren't part of the test environment: their magic numbers, placed by hand.


def le32(number: int) -> bytes:
    return number.to_bytes(4, "little")


PLACED: dict[str, dict[int, bytes]] = {
    "hcfs": {0: b"HCFS\x89\r\n\x1a"},
    "exfat": {3: b"EXFAT   ", 510: b"\x55\xaa"},
    "ntfs": {3: b"NTFS    ", 510: b"\x55\xaa"},
    "iso9660": {32769: b"CD001", 32808: b"DEBIAN 12".ljust(32)},
    "udf": {32769: b"BEA01", 34817: b"NSR03", 36865: b"TEA01"},
    "bcache": {4096 + 24: bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")},
    "bcachefs": {4096 + 24: bytes.fromhex("c68573f666ce90a9d96a60cf803df7ef")},
    "f2fs": {1024: b"\x10\x20\xf5\xf2", 1024 + 124: "flash".encode("utf-16-le")},
    "squashfs": {0: b"hsqs"},
    "erofs": {1024: b"\xe2\xe1\xf5\xe0"},
    "jfs": {32768: b"JFS1"},
    "reiserfs": {65536 + 52: b"ReIsEr2Fs"},
    "zfs_member": {16384: b"\1\1\0\0\0\0\0\0\0\0\0\1"},
    "stratis": {516: b"!Stra0tis\x86\xff\x02^\x41rh"},
    "ceph_bluestore": {0: b"bluestore block device"},
    "isw_raid_member": {64 * MIB - 1024: b"Intel Raid ISM Cfg Sig. "},
    "ddf_raid_member": {64 * MIB - 512: b"\xde\x11\xde\x11"},
    "drbd": {64 * MIB - 4096 + 60: b"\x83\x74\x02\x6d"},
}


def placed(image: Path, parts: dict[int, bytes]) -> Path:
    with image.open("r+b") as file:
        for offset, value in parts.items():
            file.seek(offset)
            file.write(value)
    return image


@pytest.mark.parametrize("kind", sorted(PLACED))
def test_magic_numbers_are_found_where_they_belong(make_image: Any, kind: str) -> None:
    assert {signature.kind for signature in own(placed(make_image("64M"), PLACED[kind]))} == {kind}


@pytest.mark.parametrize(
    ("kind", "label"), [("iso9660", "DEBIAN 12"), ("f2fs", "flash"), ("squashfs", None), ("hcfs", None)]
)
def test_labels_are_read(make_image: Any, kind: str, label: str | None) -> None:
    assert own(placed(make_image("64M"), PLACED[kind]))[0].label == label


MD_NAME = b"host:0".ljust(32, b"\0")


@pytest.mark.parametrize(
    ("version", "offset", "parts"),
    [
        ("0.90", 64 * MIB - 65536, {0: le32(0xA92B4EFC), 4: le32(0)}),
        ("0.90 big-endian", 64 * MIB - 65536, {0: 0xA92B4EFC.to_bytes(4, "big")}),
        ("1.0", 64 * MIB - 8192, {0: le32(0xA92B4EFC), 4: le32(1), 32: MD_NAME}),
        ("1.1", 0, {0: le32(0xA92B4EFC), 4: le32(1), 32: MD_NAME}),
        ("1.2", 4096, {0: le32(0xA92B4EFC), 4: le32(1), 32: MD_NAME}),
    ],
)
def test_raid_members_are_found_in_each_superblock_version(
    make_image: Any, version: str, offset: int, parts: dict[int, bytes]
) -> None:
    image = placed(make_image("64M"), {offset + at: value for at, value in parts.items()})
    label = "host:0" if version[0] == "1" else None
    assert own(image) == [Signature(offset, "linux_raid_member", label)]


def test_each_of_the_four_zfs_labels_is_found_by_its_uberblocks(make_image: Any) -> None:
    kib = 1024
    for label in (0, 256 * kib, 64 * MIB - 512 * kib, 64 * MIB - 256 * kib):
        offset = label + 128 * kib + 5 * kib
        image = placed(make_image("64M"), {offset: 0x00BAB10C.to_bytes(8, "big")})
        assert own(image) == [Signature(offset, "zfs_member")]


def test_hcfs_is_found_at_either_end(make_image: Any) -> None:
    image = placed(make_image(64 * MIB + 512), {64 * MIB - 4096: b"HCFS\x89\r\n\x1a"})
    assert own(image) == [Signature(64 * MIB - 4096, "hcfs")]


# The whole


@pytest.mark.parametrize("size", [0, 1, 511, 512, 4095, 4096, 65536, 10 * MIB + 17])
def test_a_medium_of_zeros_has_no_signature_whatever_its_size(make_image: Any, size: int) -> None:
    assert probe(str(make_image(size))) == []


def test_every_signature_of_a_medium_is_listed_by_offset(make_image: Any) -> None:
    image = make_image("64M")
    run("mkswap", image)
    run("mke2fs", "-q", "-F", "-t", "ext2", image)
    placed(image, {510: b"\x55\xaa", 4086: b"SWAPSPACE2"})
    assert [signature.kind for signature in probe(str(image))] == ["dos", "ext2", "swap"]


def test_what_only_wipefs_knows_is_added(make_image: Any) -> None:
    image = placed(make_image("64M"), {1024 + 16: b"\x7f\x13", 1024: le32(0)[:2]})
    run("mkfs.minix", image)
    assert own(image) == []
    assert [signature.kind for signature in probe(str(image))] == ["minix"]


@pytest.mark.parametrize("answer", ["#!/bin/sh\nexit 3\n", "#!/bin/sh\necho nonsense\n", '#!/bin/sh\necho "[1]"\n'])
def test_a_wipefs_that_fails_or_talks_nonsense_is_passed_over(
    make_image: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    program = tmp_path / "wipefs"
    program.write_text(answer)
    program.chmod(0o755)
    monkeypatch.setattr(wipefs_module, "_SEARCH_PATH", str(tmp_path))
    image = make_image("64M")
    run("mkswap", image)
    assert [signature.kind for signature in probe(str(image))] == ["swap"]


def test_a_path_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeviceNotFound, match=f"^{tmp_path}/none can't be read: No such file"):
        probe(f"{tmp_path}/none")


def test_a_signature_as_text_names_kind_label_and_place() -> None:
    assert str(Signature(1080, "ext4", "scratch")) == 'ext4 "scratch" at offset 1080'
    assert str(Signature(0, "xfs")) == "xfs at offset 0"


def test_the_tools_that_the_comparisons_need_are_there() -> None:
    needed = ["blkid", "wipefs", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "pvcreate", "cryptsetup", "mkswap", "sgdisk"]
    assert [tool for tool in [*needed, "sfdisk", "mkfs.vfat"] if shutil.which(tool) is None] == []
