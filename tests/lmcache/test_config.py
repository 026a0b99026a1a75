"""The JSON for LMCache's --l2-adapter, without LMCache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hcfs.lmcache.config import adapter_json, adapter_spec


def test_the_spec_points_at_the_namespace() -> None:
    assert adapter_spec("/mnt/hc", "kv") == {
        "type": "fs_native",
        "base_path": "/mnt/hc/kv",
        "num_workers": 4,
        "use_odirect": True,
    }


def test_the_json_is_one_line_that_reads_as_the_spec() -> None:
    text = adapter_json('/mnt/it\'s "hc"\n', "k v", num_workers=8, use_odirect=False)
    assert "\n" not in text
    assert json.loads(text) == adapter_spec('/mnt/it\'s "hc"\n', "k v", num_workers=8, use_odirect=False)


def test_a_relative_directory_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert adapter_spec("mnt/../mnt", "kv")["base_path"] == str(tmp_path / "mnt" / "kv")


@pytest.mark.parametrize("namespace", ["", ".", "..", "a/b", "/", ".hcfs", "a\0b"])
def test_what_is_not_a_namespaces_name_is_refused(namespace: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a namespace"):
        adapter_spec("/mnt/hc", namespace)


@pytest.mark.parametrize("workers", [0, -1, True])
def test_a_wrong_number_of_workers_is_refused(workers: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        adapter_spec("/mnt/hc", "kv", num_workers=workers)


def test_a_path_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="not UTF-8"):
        adapter_spec("/mnt/\udcff", "kv")
