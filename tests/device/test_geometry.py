"""Sizes, sectors and alignments as the kernel and the filesystems tell them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hcfs.device import BLOCK, Geometry, syscalls
from hcfs.device.geometry import geometry
from hcfs.device.sysfs import read_attribute, sysfs_directory, whole_disk

MIB = 1 << 20


def geometry_of(path: object) -> Geometry:
    fd = os.open(str(path), os.O_RDONLY)
    try:
        return geometry(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize("sector", [512, 4096])
def test_a_block_device(make_loop: Any, sector: int) -> None:
    shape = geometry_of(make_loop("16M", sector=sector))
    assert (shape.size, shape.logical_block, shape.dio_offset_alignment) == (16 * MIB, sector, sector)
    assert 0 < shape.dio_memory_alignment <= BLOCK
    assert shape.direct_io
    assert isinstance(shape.rotational, bool)


def test_an_image(make_image: Any) -> None:
    shape = geometry_of(make_image(16 * MIB + 100))
    assert shape.size == 16 * MIB + 100
    assert shape.direct_io
    assert (shape.rotational, shape.model, shape.serial) == (None, None, None)


@pytest.mark.parametrize("sector", [512, 4096])
def test_kernels_that_do_not_tell_alignments_are_asked_by_sysfs(
    make_loop: Any, monkeypatch: pytest.MonkeyPatch, sector: int
) -> None:
    path = make_loop("16M", sector=sector)
    told = geometry_of(path)
    monkeypatch.setattr(syscalls, "direct_io_alignment", lambda fd: None)
    assert geometry_of(path) == told


def test_without_sysfs_the_sector_is_alignment_enough(make_loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_loop("16M", sector=4096)
    monkeypatch.setattr(syscalls, "direct_io_alignment", lambda fd: None)
    monkeypatch.setattr("hcfs.device.geometry.sysfs_directory", lambda rdev: Path("/nonexistent"))
    shape = geometry_of(path)
    assert (shape.dio_memory_alignment, shape.dio_offset_alignment, shape.rotational) == (4096, 4096, None)


def test_an_image_whose_filesystem_says_nothing_gets_whole_blocks(
    make_image: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syscalls, "direct_io_alignment", lambda fd: None)
    shape = geometry_of(make_image("16M"))
    assert (shape.dio_memory_alignment, shape.dio_offset_alignment) == (BLOCK, BLOCK)


@pytest.mark.parametrize(
    ("memory", "offset", "possible"), [(0, 0, False), (4, 512, True), (4096, 4096, True), (512, 65536, False)]
)
def test_direct_io_needs_alignments_that_blocks_and_pages_have(memory: int, offset: int, possible: bool) -> None:
    assert Geometry(1 << 30, 512, 4096, memory, offset).direct_io is possible


def test_model_and_serial_come_from_the_whole_disk(
    tmp_path: Path, make_loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "nvme0n1"
    for name, text in {
        "queue/rotational": "0\n",
        "device/model": "Fast Drive 4TB      \n",
        "device/serial": "S12345\n",
        "nvme0n1p1/partition": "1\n",
    }.items():
        (disk / name).parent.mkdir(parents=True, exist_ok=True)
        (disk / name).write_text(text)
    monkeypatch.setattr("hcfs.device.geometry.sysfs_directory", lambda rdev: disk / "nvme0n1p1")
    shape = geometry_of(make_loop("16M"))
    assert (shape.rotational, shape.model, shape.serial) == (False, "Fast Drive 4TB", "S12345")


def test_sysfs_is_found_by_device_number(make_loop: Any) -> None:
    path = make_loop("16M")
    directory = sysfs_directory(os.stat(path).st_rdev)
    assert directory.name == path.name
    assert whole_disk(directory) == directory
    assert read_attribute(directory / "loop/backing_file") is not None
    assert read_attribute(directory / "none") is None


def test_a_copy_needs_a_writable_destination_of_the_same_length() -> None:
    destination = bytearray(8)
    syscalls.copy_bytes(memoryview(destination), memoryview(b"12345678"))
    assert destination == b"12345678"
    with pytest.raises(ValueError, match="can't be copied"):
        syscalls.copy_bytes(memoryview(destination), memoryview(b"1234567"))
    with pytest.raises(ValueError, match="can't be copied"):
        syscalls.copy_bytes(memoryview(b"12345678"), memoryview(b"12345678"))
