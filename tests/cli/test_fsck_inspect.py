"""fsck's exit codes and findings, and inspect's view of the same structures, on stores that no mount touched."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hcfs.device import BufferPool, open_device
from hcfs.store import ROOT_ID, UnrecoveredStore
from lab.harness.cli import hcfs


@pytest.fixture
def image(make_image: Callable[..., Path]) -> Path:
    """A store with one namespace and one file of 300,000 bytes."""
    path = make_image("64M")
    hcfs("mkfs", path)
    device = open_device(str(path), BufferPool(16 << 20))
    store = UnrecoveredStore.open(device, BufferPool(16 << 20)).recover()
    namespace = store.mkdir(ROOT_ID, b"kv", 0o755, 0, 0)
    staged = store.stage(None, namespace=namespace, mode=0o644, uid=0, gid=0)
    staged.write(0, bytes(range(256)) * 1171 + bytes(224))
    staged.seal()
    store.publish(staged, namespace, b"object")
    store.close()
    device.close()
    return path


def inspect(image: Path, *words: str) -> Any:
    return json.loads(hcfs("inspect", image, *words, "--json").stdout)


def flip(image: Path, offset: int) -> None:
    with image.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def fsck(image: Path, *words: str) -> tuple[int, dict[str, Any]]:
    result = hcfs("fsck", image, *words, "--json", check=False)
    return result.returncode, json.loads(result.stdout)


def test_a_clean_store(image: Path) -> None:
    code, report = fsck(image, "--data")
    assert (code, report["clean"], report["problems"]) == (0, True, [])
    assert (report["files"], report["granules_checked"]) == (1, 2)
    assert hcfs("fsck", image).stdout.endswith(f"{image}: clean\n")


def test_damaged_data_is_found_by_data_alone(image: Path) -> None:
    (extent, *_) = inspect(image, "object", "/kv/object")["extents"]
    flip(image, extent["offset"] + 100)
    assert fsck(image)[0] == 0
    code, report = fsck(image, "--data")
    assert (code, report["clean"]) == (4, False)
    (problem,) = report["problems"]
    assert (problem["kind"], problem["where"]) == ("checksum", "/kv/object")
    text = hcfs("fsck", image, "--data", check=False)
    assert text.returncode == 4
    assert "checksum: /kv/object" in text.stdout
    assert text.stdout.endswith("1 error left\n")
    verdicts = [granule["verifies"] for granule in inspect(image, "object", "/kv/object")["checksums"]]
    assert verdicts == [False, True]


def test_a_damaged_superblock_copy_is_an_error_left(image: Path) -> None:
    flip(image, 100)
    code, report = fsck(image)
    assert code == 4
    assert report["problems"][0]["kind"] == "superblock"
    found = inspect(image, "superblock")
    assert "error" in found["copies"]["first"]
    assert "error" not in found["copies"]["last"]


def test_repair_makes_a_second_pass_clean(image: Path) -> None:
    (extent, *_) = inspect(image, "object", "/kv/object")["extents"]
    flip(image, 100)
    flip(image, extent["offset"] + 100)
    code, report = fsck(image, "--repair", "--data")
    assert (code, report["clean"], report["problems"]) == (1, True, [])
    assert [done["kind"] for done in report["repairs"]] == ["superblock", "object"]
    assert fsck(image, "--data")[0] == 0
    assert hcfs("fsck", image, "--repair").stdout.endswith(f"{image}: clean\n")
    flip(image, 100)
    text = hcfs("fsck", image, "--repair", check=False)
    assert (text.returncode, text.stdout.splitlines()[-1]) == (1, f"{image}: repaired, clean")
    assert text.stdout.startswith("repaired: superblock: first block: ")


def test_repair_writes_nothing_to_a_clean_store(image: Path) -> None:
    before = image.read_bytes()
    assert fsck(image, "--repair", "--data")[0] == 0
    assert image.read_bytes() == before


def test_fsck_writes_nothing(image: Path) -> None:
    before = image.read_bytes()
    fsck(image, "--data")
    assert image.read_bytes() == before


@pytest.mark.parametrize("words", [[], ["--nonsense"]])
def test_what_fsck_cannot_do_is_8(image: Path, tmp_path: Path, words: list[str]) -> None:
    target = image if words else tmp_path / "absent"
    result = hcfs("fsck", target, *words, check=False)
    assert result.returncode == 8
    assert len(result.stderr.splitlines()) == 1


def test_no_store_is_8(make_image: Callable[..., Path]) -> None:
    assert hcfs("fsck", make_image("64M"), check=False).returncode == 8


def test_a_truncated_image_is_one_sentence(image: Path) -> None:
    with image.open("r+b") as file:
        file.truncate(32 << 20)
    for words in (["fsck"], ["info"], ["inspect"]):
        result = hcfs(*words, image, *(["superblock"] if words == ["inspect"] else []), check=False)
        assert result.returncode == (8 if words == ["fsck"] else 1)
        assert "truncated" in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_inspect_lists(image: Path) -> None:
    objects = {each["path"]: each for each in inspect(image, "objects")}
    assert set(objects) == {"/", "/kv", "/kv/object"}
    assert objects["/kv/object"]["size"] == 300_000
    extents = inspect(image, "extents")
    assert sum(each["count"] for each in extents) == inspect(image, "superblock")["superblock"]["data_blocks"]
    assert {"/kv/object", None} == {each["path"] for each in extents}
    log = inspect(image, "log")
    assert "torn_tail" in log[-1]
    names = {item.get("name") for entry in log[:-1] for item in entry["items"]}
    assert {"kv", "object"} <= names


@pytest.mark.parametrize("what", ["superblock", "log", "objects", "extents"])
def test_inspect_as_text(image: Path, what: str) -> None:
    assert hcfs("inspect", image, what).stdout


def test_inspect_one_object(image: Path) -> None:
    by_path = inspect(image, "object", "/kv/object")
    assert by_path == inspect(image, "object", str(by_path["id"]))
    assert str(by_path["id"]) in hcfs("inspect", image, "object", "/kv/object").stdout
    result = hcfs("inspect", image, "object", "/kv/absent", check=False)
    assert (result.returncode, "/kv/absent" in result.stderr) == (1, True)
    assert hcfs("inspect", image, "object", check=False).returncode == 2
    assert hcfs("inspect", image, "log", "extra", check=False).returncode == 2
