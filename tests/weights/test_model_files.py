"""Which files make up a model, and sets of files that don't belong together."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hcfs.errors import HcfsError
from hcfs.weights import DamagedWeights, load, plan
from lab.harness.weights import Description, safetensors, write_model

A: dict[str, Description] = {"a": ("U8", [1], b"a")}
B: dict[str, Description] = {"b": ("U8", [1], b"b")}
INDEX = "model.safetensors.index.json"


def names(path: Path) -> list[str]:
    return [each.info.name for each in plan(path).tensors]


def test_a_file_an_index_and_a_directory(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", [A, B])
    assert names(model) == names(model / INDEX) == ["a", "b"]
    assert names(model / "model-00001-of-00002.safetensors") == ["a"]
    assert {key: value.tobytes() for key, value in load(model, framework="numpy").items()} == {"a": b"a", "b": b"b"}


def test_a_directory_without_an_index(tmp_path: Path) -> None:
    for number in (2, 10, 1):
        (tmp_path / f"part{number}.safetensors").write_bytes(safetensors({f"x{number}": ("U8", [1], b"x")}))
    (tmp_path / "config.json").write_text("{}")
    assert [os.path.basename(each.path) for each in plan(tmp_path).files] == [
        f"part{number}.safetensors" for number in (1, 2, 10)
    ]


def test_one_whole_file_comes_before_an_index(tmp_path: Path) -> None:
    write_model(tmp_path, [A, B])
    (tmp_path / "model.safetensors").write_bytes(safetensors({"whole": ("U8", [1], b"x")}))
    assert names(tmp_path) == ["whole"]


def test_a_shard_may_hold_more_than_the_index_says(tmp_path: Path) -> None:
    write_model(tmp_path, [A, B])
    index = json.loads((tmp_path / INDEX).read_text())
    del index["weight_map"]["b"]
    index["weight_map"]["a2"] = index["weight_map"]["a"]
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(safetensors({**A, "a2": A["a"], "more": A["a"]}))
    (tmp_path / INDEX).write_text(json.dumps(index))
    assert names(tmp_path) == ["a", "a2", "more"]


def refused(path: Path, *words: str) -> None:
    with pytest.raises(DamagedWeights) as refusal:
        plan(path)
    for word in words:
        assert word in str(refusal.value)


def test_missing_shards(tmp_path: Path) -> None:
    write_model(tmp_path, [A, B])
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    refused(tmp_path, INDEX, "1 of its 2 shards are missing", "model-00002-of-00002.safetensors")


def test_a_name_in_two_shards(tmp_path: Path) -> None:
    write_model(tmp_path, [{**A, "c": A["a"]}, {**B, **A}])
    refused(tmp_path, "00002-of-00002.safetensors can't", "'a' is in model-00001-of-00002.safetensors too")
    (tmp_path / INDEX).unlink()
    refused(tmp_path, "'a' is in model-00001-of-00002.safetensors too")


def test_a_tensor_that_isnt_in_its_shard(tmp_path: Path) -> None:
    write_model(tmp_path, [A, B])
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(safetensors({}))
    refused(tmp_path, "1 tensors are not in the shards", "'b' in model-00002-of-00002.safetensors")


@pytest.mark.parametrize("name", ["../a.safetensors", "/etc/passwd", "", "..", "sub/a.safetensors", "a\0b"])
def test_an_index_that_names_other_places(tmp_path: Path, name: str) -> None:
    write_model(tmp_path, [A])
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
    refused(tmp_path, "no file beside it")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"[" * 200_000, b"[]", b"{}", b'{"weight_map": []}', b'{"weight_map": {"a": 1}}']
)
def test_an_index_that_is_none(tmp_path: Path, content: bytes) -> None:
    write_model(tmp_path, [A])
    (tmp_path / INDEX).write_bytes(content)
    refused(tmp_path, INDEX)


def test_an_empty_directory_and_a_missing_path(tmp_path: Path) -> None:
    refused(tmp_path, "no model.safetensors.index.json and no file")
    with pytest.raises(HcfsError, match="absent can't be read: No such file"):
        plan(tmp_path / "absent")


def test_the_plan_says_what_would_be_read(tmp_path: Path) -> None:
    write_model(tmp_path, [{"l.1.w": ("BF16", [2, 1], b"abcd")}, B])
    document: Any = plan(tmp_path).document()
    assert document["tensor_bytes"] == 5
    assert [each["file_bytes"] for each in document["files"]] == [
        os.path.getsize(tmp_path / f"model-0000{number}-of-00002.safetensors") for number in (1, 2)
    ]
    first = document["tensors"][0]
    shard = tmp_path / first["file"]
    assert shard.read_bytes()[first["offset"] :] == b"abcd"
    assert (first["name"], first["stage"], first["dtype"], first["shape"], first["bytes"]) == (
        "l.1.w",
        "l.1",
        "BF16",
        [2, 1],
        4,
    )
    json.dumps(document)
