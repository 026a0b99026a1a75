"""After wipe() nobody takes the medium for theirs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from device.conftest import run
from device.test_signatures import FORMATTERS, SIZES

from hcfs.device import BLOCK, BufferPool, DeviceError, MemoryDevice, open_device
from hcfs.device.signatures import Medium, probe, scan, wipe

MIB = 1 << 20


def wipe_path(path: object) -> None:
    device = open_device(str(path), BufferPool(4 * MIB))
    wipe(device)
    device.close()


@pytest.mark.parametrize("name", sorted(FORMATTERS))
def test_no_signature_of_a_real_format_is_left(make_image: Any, name: str) -> None:
    image: Path = make_image(SIZES.get(name, "64M"))
    FORMATTERS[name][0](image)
    assert probe(str(image)) != []
    wipe_path(image)
    assert probe(str(image)) == []
    assert subprocess.run(["blkid", "-p", str(image)], capture_output=True).stdout == b""


@pytest.mark.parametrize("sector", [512, 4096])
def test_the_kernel_forgets_the_partitions_of_a_disk(make_loop: Any, sector: int) -> None:
    device = make_loop("64M", sector=sector)
    run("sgdisk", "-n", "1:2048:+8M", device)
    wipe_path(device)
    assert probe(str(device)) == []
    assert run("wipefs", device) == ""


def test_the_middle_of_a_medium_is_left_alone(make_image: Any) -> None:
    image: Path = make_image("64M")
    with image.open("r+b") as file:
        file.seek(20 * MIB)
        file.write(b"x" * MIB)
    wipe_path(image)
    content = image.read_bytes()
    assert content[20 * MIB : 21 * MIB] == b"x" * MIB
    assert content.count(b"x") == MIB


def test_the_copies_of_a_btrfs_superblock_are_removed_too(make_image: Any) -> None:
    image: Path = make_image("256M")
    run("mkfs.btrfs", "-q", image)
    with image.open("rb") as file:
        file.seek(64 * MIB + 64)
        assert file.read(8) == b"_BHRfS_M"
    wipe_path(image)
    with image.open("rb") as file:
        file.seek(64 * MIB + 64)
        assert file.read(8) == bytes(8)


@pytest.mark.parametrize("blocks", [1, 2, 2047, 2048, 2049, 4096, 4097])
def test_small_media_are_zeroed_whole(blocks: int) -> None:
    device = MemoryDevice.holding(b"x" * blocks * BLOCK)
    wipe(device)
    kept = max(0, device.size - 16 * MIB)
    assert bytes(device.contents).count(b"x") == kept


def test_a_partition_table_in_the_last_incomplete_block_is_removed(tmp_path: Path) -> None:
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(32 * MIB + 1536)
    run("sgdisk", "-n", "1:2048:+8M", image)
    assert [signature.offset for signature in probe(str(image))] == [510, 512, 32 * MIB + 1024]
    wipe_path(image)
    assert probe(str(image)) == []
    assert image.stat().st_size == 32 * MIB + 1536


def test_a_device_that_takes_no_writes_is_an_error() -> None:
    with pytest.raises(DeviceError):
        wipe(MemoryDevice(64 * BLOCK, read_only=True))


def test_a_device_in_memory_is_scanned_like_a_file() -> None:
    device = MemoryDevice(64 * BLOCK)
    device.contents[510:512] = b"\x55\xaa"
    assert [signature.kind for signature in scan(Medium.of_device(device))] == ["dos"]
