"""`hcfs weights`: plan and load, for people and for programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.harness.cli import hcfs
from lab.harness.weights import Description, noise, safetensors, write_model

TENSORS: dict[str, Description] = {
    "lm_head.weight": ("F32", [2], bytes(8)),
    "model.layers.10.w": ("U8", [300_000], noise(300_000)),
    "model.layers.9.w": ("BF16", [2, 3], bytes(12)),
    "model.embed.w": ("F8_E4M3", [], b"x"),
}
ORDER = ["model.embed.w", "model.layers.9.w", "model.layers.10.w", "lm_head.weight"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    parts = list(TENSORS.items())
    return write_model(tmp_path / "model", [dict(parts[:2]), dict(parts[2:])])


def test_plan(model: Path) -> None:
    shown = hcfs("weights", "plan", model).stdout.splitlines()
    assert shown[0].split() == ["stage", "name", "dtype", "shape", "bytes", "file", "offset"]
    assert [line.split()[1] for line in shown[1:-1]] == ORDER
    assert shown[-1] == "4 tensors, 293.0 KiB in 2 files"
    document = json.loads(hcfs("weights", "plan", model, "--json").stdout)
    assert [each["name"] for each in document["tensors"]] == ORDER
    assert [each["stage"] for each in document["tensors"]][1:3] == ["model.layers.9", "model.layers.10"]


def test_plan_needs_no_library() -> None:
    program = (
        "import sys, hcfs.cli.weights, hcfs.weights\n"
        "print(sorted({'torch', 'numpy', 'safetensors', 'ml_dtypes', 'pyfuse3', 'trio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_load_says_what_was_in_force(model: Path) -> None:
    words = ["--budget", "1M", "--threads", "2", "--io", "buffered", "--json"]
    report = json.loads(hcfs("weights", "load", model, *words).stdout)
    assert report["tensors"] == 4
    assert report["tensor_bytes"] == 300_021
    assert (report["budget_bytes"], report["threads"], report["io"]) == (1 << 20, 2, "buffered")
    assert report["direct_bytes"] == 0 < report["buffered_bytes"]
    assert 0 < report["peak_bytes"] <= 1 << 20
    shown = hcfs("weights", "load", model, "--io", "direct").stdout
    assert "direct:" in shown
    assert "budget:" in shown


@pytest.mark.parametrize("words", [["plan"], ["load"], ["load", "--json"]])
def test_what_is_wrong_is_one_sentence(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "bad.safetensors").write_bytes(safetensors(TENSORS)[:-1])
    for path, reason in (
        (tmp_path / "bad.safetensors", "it is truncated"),
        (tmp_path / "absent", "No such file or directory"),
    ):
        done = hcfs("weights", words[0], path, *words[1:], check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"hcfs: {path} can't be")
        assert reason in done.stderr
        assert done.stderr.count("\n") == 1


def test_usage(model: Path) -> None:
    assert hcfs("weights", "load", model, "--budget", "4K", check=False).returncode == 2
    assert hcfs("weights", "load", model, "--io", "mmap", check=False).returncode == 2
    assert hcfs("weights", "load", model, "--device", "cuda", check=False).returncode == 2
