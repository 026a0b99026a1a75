"""mkfs: what it shows, what it refuses, and that a refusal writes nothing."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.harness.cli import hcfs

MIB = 1 << 20


def info(target: Path) -> dict[str, object]:
    return json.loads(hcfs("info", target, "--json").stdout)


def state(path: Path) -> tuple[int, bytes]:
    """Size and content: what a refusal must leave as it was."""
    return path.stat().st_size, path.read_bytes()


def refused(*words: str | Path) -> str:
    result = hcfs("mkfs", *words, check=False)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    return line


def test_an_image_is_created_with_size(tmp_path: Path) -> None:
    image = tmp_path / "a.img"
    made = json.loads(hcfs("mkfs", image, "--size", "64M", "--label", "cache0", "--json").stdout)
    assert image.stat().st_size == 64 * MIB
    assert made["device"] == str(image)
    assert made["size_bytes"] == 64 * MIB
    assert made["signatures"] == []
    assert 0 < made["usable_bytes"] < 64 * MIB
    found = info(image)
    assert {key: found[key] for key in ("uuid", "label", "usable_bytes", "granule_bytes")} == {
        "uuid": made["uuid"],
        "label": "cache0",
        "usable_bytes": made["usable_bytes"],
        "granule_bytes": 256 << 10,
    }


@pytest.mark.parametrize("there", [True, False])
def test_mkfs_and_info_tell_the_same_of_a_device(tmp_path: Path, make_loop: Callable[..., Path], there: bool) -> None:
    targets: list[tuple[Path, list[str]]] = [(tmp_path / "a.img", ["--size", "64M"])]
    if there:
        targets = [(make_loop("64M"), []), (make_loop("64M", sector=4096), [])]
        (tmp_path / "b.img").write_bytes(b"")
        targets.append((tmp_path / "b.img", ["--size", "64M"]))
    for target, words in targets:
        made = json.loads(hcfs("mkfs", target, *words, "--json").stdout)
        found = info(target)
        both = ("resolved", "size_bytes", "logical_block_bytes", "model", "serial", "usable_bytes")
        assert {name: made[name] for name in both} == {name: found[name] for name in both}


def test_text_names_device_size_signatures_uuid_and_usable_bytes(make_image: Callable[..., Path]) -> None:
    image = make_image("64M")
    subprocess.run(["mkfs.ext4", "-q", "-L", "scratch", image], check=True)
    text = hcfs("mkfs", image, "--force").stdout
    found = info(image)
    for expected in (str(image), str(64 * MIB), "ext4", "scratch", found["uuid"], found["usable_bytes"]):
        assert str(expected) in text


def test_size_grows_an_image_and_never_shrinks_it(tmp_path: Path, make_image: Callable[..., Path]) -> None:
    image = make_image("32M")
    hcfs("mkfs", image, "--size", "64M")
    assert image.stat().st_size == 64 * MIB
    result = hcfs("mkfs", image, "--size", "32M", "--force", check=False)
    assert result.returncode == 2
    assert "only grows" in result.stderr
    assert image.stat().st_size == 64 * MIB


def test_without_a_size_a_missing_file_is_not_created(tmp_path: Path) -> None:
    result = hcfs("mkfs", tmp_path / "a.img", check=False)
    assert result.returncode == 2
    assert "--size" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [("--size=1M",), ("--size=64M", "--granule=100K"), ("--size=64M", f"--label={'x' * 65}"), ("--size=0",)],
)
def test_a_refusal_leaves_no_file_behind(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = hcfs("mkfs", tmp_path / "a.img", *words, check=False)
    assert result.returncode in (1, 2)
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("maker", [["mkfs.ext4", "-q"], ["mkswap"], ["mkfs.vfat"], ["sfdisk", "-q"], ["hcfs"]])
def test_a_signature_is_refused_without_a_terminal(make_image: Callable[..., Path], maker: list[str]) -> None:
    image = make_image("64M")
    if maker == ["hcfs"]:
        hcfs("mkfs", image)
    else:
        table = b"label: gpt\n1M,8M\n" if maker[0] == "sfdisk" else None
        subprocess.run([*maker, image], input=table, check=True, capture_output=True)
    before = state(image)
    assert "--force" in refused(image)
    assert "--force" in refused(image, "--dry-run")
    assert "--force" in refused(image, "--size", "80M")
    assert state(image) == before


def test_force_leaves_no_old_signature(make_image: Callable[..., Path]) -> None:
    image = make_image("64M")
    subprocess.run(["sfdisk", "-q", image], input=b"label: gpt\n1M,8M\n", check=True, capture_output=True)
    hcfs("mkfs", image, "--force")
    assert subprocess.run(["wipefs", image], check=True, capture_output=True).stdout == b""
    assert info(image)["label"] == ""


def test_dry_run_writes_nothing(tmp_path: Path, make_image: Callable[..., Path]) -> None:
    image = make_image("64M")
    before = state(image)
    document = json.loads(hcfs("mkfs", image, "--dry-run", "--json").stdout)
    assert document["dry_run"] is True
    assert document["usable_bytes"] > 0
    assert state(image) == before
    absent = tmp_path / "absent.img"
    hcfs("mkfs", absent, "--size", "64M", "--dry-run")
    assert not absent.exists()


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    assert "directory" in refused(tmp_path)
    assert "block device or an image file" in refused("/dev/null")


def test_a_block_device_has_its_own_size(make_loop: Callable[..., Path]) -> None:
    loop = make_loop("64M")
    assert hcfs("mkfs", loop, "--size", "64M", check=False).returncode == 2
    made = json.loads(hcfs("mkfs", loop, "--json").stdout)
    assert made["size_bytes"] == 64 * MIB


def test_by_id_names_are_shown_with_what_they_lead_to(tmp_path: Path, make_loop: Callable[..., Path]) -> None:
    loop = make_loop("64M")
    link = tmp_path / "by-id"
    link.symlink_to(loop)
    made = json.loads(hcfs("mkfs", link, "--json").stdout)
    assert (made["device"], made["resolved"]) == (str(link), str(loop))


def test_a_mounted_device_is_refused_with_force_too(tmp_path: Path, make_loop: Callable[..., Path]) -> None:
    loop = make_loop("64M")
    subprocess.run(["mkfs.ext4", "-q", loop], check=True)
    mountpoint = tmp_path / "ext4"
    mountpoint.mkdir()
    subprocess.run(["mount", loop, mountpoint], check=True)
    try:
        assert str(mountpoint) in refused(loop, "--force")
    finally:
        subprocess.run(["umount", mountpoint], check=True)


@pytest.mark.parametrize(("answer", "made"), [(b"y\n", True), (b"n\n", False), (b"\n", False)])
def test_a_terminal_is_asked_and_the_default_is_no(make_image: Callable[..., Path], answer: bytes, made: bool) -> None:
    image = make_image("64M")
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    before = state(image)
    controller, terminal = pty.openpty()
    try:
        os.write(controller, answer)
        process = subprocess.run(
            [sys.executable, "-m", "hcfs", "mkfs", str(image)],
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=terminal,
            timeout=60,
        )
    finally:
        os.close(terminal)
        os.close(controller)
    assert process.returncode == (0 if made else 1)
    assert (state(image) == before) is not made


def test_uuid_and_label_find_the_device(make_loop: Callable[..., Path]) -> None:
    loop = make_loop("64M")
    label = f"test-{os.getpid()}-{loop.name}"
    made = json.loads(hcfs("mkfs", loop, "--label", label, "--json").stdout)
    assert info(Path(f"UUID={made['uuid']}"))["device"] == str(loop)
    assert info(Path(f"LABEL={label}"))["device"] == str(loop)
    twin = make_loop("64M")
    hcfs("mkfs", twin, "--label", label)
    result = hcfs("info", f"LABEL={label}", check=False)
    assert result.returncode == 1
    assert str(loop) in result.stderr
    assert str(twin) in result.stderr


@pytest.mark.parametrize(
    ("source", "code"), [("UUID=00000000-0000-4000-8000-000000000000", 1), ("UUID=nonsense", 2), ("LABEL=", 2)]
)
def test_what_no_device_has(source: str, code: int) -> None:
    result = hcfs("info", source, check=False)
    assert result.returncode == code
    assert source in result.stderr


def test_info_of_what_is_no_store(make_image: Callable[..., Path], tmp_path: Path) -> None:
    image = make_image("64M")
    for target in (image, tmp_path, tmp_path / "absent"):
        result = hcfs("info", target, check=False)
        assert result.returncode == 1
        assert str(target) in result.stderr
