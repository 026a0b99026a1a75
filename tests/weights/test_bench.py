"""`hcfs weights bench`, with models so small that its figures mean nothing: what it checks, reports and leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hcfs.errors import HcfsError, UsageError
from hcfs.weights.bench import compare as compare_module
from hcfs.weights.bench.child import digest_of
from hcfs.weights.bench.compare import compare
from hcfs.weights.bench.loaders import DROPPED_BUDGET, LOADERS, Model, versions
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.weights import Description, noise, safetensors, write_model

TENSORS: dict[str, Description] = {
    "model.layers.0.w": ("F32", [500, 500], noise(1_000_000)),
    "model.layers.1.w": ("BF16", [3], b"abcdef"),
    "none": ("F32", [0], b""),
    "scalar": ("F64", [], bytes(8)),
}


# All measurements in one process: importing torch takes longer than they do.
TOGETHER = (
    "import json, sys\n"
    "from hcfs.weights.bench import compare as module\n"
    "from hcfs.weights.bench.child import MEASUREMENTS\n"
    "from hcfs.weights.bench.loaders import LOADERS\n"
    "module.measured = lambda name, **arguments: MEASUREMENTS[name](**arguments)\n"
    "print(json.dumps(module.compare(sys.argv[1:], loaders=list(LOADERS), rounds=1)))\n"
)


@pytest.fixture
def models(loop_mount: Mount, tmp_path: Path) -> list[Path]:
    """The same model on hcfs and elsewhere."""
    pytest.importorskip("torch")
    parts = list(TENSORS.items())
    shards = [dict(parts[:1]), dict(parts[1:])]
    namespace = loop_mount.ns(f"bench{tmp_path.name}")
    return [write_model(namespace / "model", shards), write_model(tmp_path / "model", shards)]


def test_loaders_beside_each_other(models: list[Path]) -> None:
    """All that are installed come to the same bytes, on both filesystems, cold and warm."""
    command = [sys.executable, "-W", "ignore", "-c", TOGETHER, *map(str, models)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=150)
    result = json.loads(done.stdout.splitlines()[-1])
    installed = {name for name, version in versions(tuple(LOADERS)).items() if version}
    assert set(result["left_out"]) == set(LOADERS) - installed
    assert result["bytes_equal"]
    assert result["tensor_bytes"] == 1_000_014
    cases = {(each["path"], each["cache"], each["loader"]): each for each in result["cases"]}
    assert len(cases) == len(result["cases"]) == 4 * len(installed)
    for case in cases.values():
        assert case["mb_s"]["min"] <= case["mb_s"]["median"] <= case["mb_s"]["max"]
        assert case["peak_bytes"] >= 0
        assert case["ratio"]["median"] > 0
    assert cases[str(models[0]), "cold", "safetensors"]["ratio"]["median"] == 1


def test_the_command(models: list[Path]) -> None:
    """Each measurement in a process of its own, as users run it."""
    words = ["weights", "bench", models[0], "--rounds", "1", "--loaders", "hcfs"]
    shown = hcfs(*words, timeout=170).stdout.splitlines()
    assert shown[0] == "976.6 KiB of tensors, 1 rounds, all bytes equal"
    assert [line.split()[1:3] for line in shown[2:]] == [["cold", "hcfs"], ["warm", "hcfs"]]


def told(*, digests: dict[str, str], failing: str = "") -> Callable[..., dict[str, Any]]:
    """A measurement that took a second, whatever was asked; digests by a word of the path."""

    def measured(_: str, **arguments: Any) -> dict[str, Any]:
        if arguments["loader"] == failing:
            raise HcfsError(f"measuring {failing} failed: it was told to")
        digest = next((found for word, found in digests.items() if word in arguments["path"]), "")
        return {"seconds": 1.0, "cpu_seconds": 1.0, "peak_bytes": 1, "digest": digest}

    return measured


def test_models_that_differ_are_no_comparison(models: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_module, "measured", told(digests={"mnt": "one", "": "other"}))
    with pytest.raises(HcfsError, match="differ in what they loaded"):
        compare([str(each) for each in models], loaders=["hcfs"], rounds=1)


def test_a_loader_that_fails_is_left_out_with_its_reason(models: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_module, "measured", told(digests={}, failing="hcfs"))
    result = compare([str(models[1])], loaders=["safetensors", "hcfs"], rounds=1)
    assert result["left_out"] == {"hcfs": "measuring hcfs failed: it was told to"}
    assert {each["loader"] for each in result["cases"]} == {"safetensors"}


def test_a_tensor_larger_than_the_small_budget_is_loaded_all_the_same(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    size = DROPPED_BUDGET + 5
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors({"a": ("U8", [size], bytes(size))}))
    load, _ = LOADERS["hcfs-dropped"]
    assert [tensor.nbytes for _, tensor in load(Model(str(path), [str(path)]))] == [size]


def test_the_checksum_sees_names_types_shapes_and_bytes() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(4, dtype=torch.int32)
    others = [{"b": tensor}, {"a": tensor.view(torch.float32)}, {"a": tensor.view(2, 2)}, {"a": tensor.flip(0)}, {}]
    assert len({digest_of(each) for each in ({"a": tensor}, {"a": tensor.clone()}, *others)}) == 6


def test_unknown_loaders_are_refused() -> None:
    with pytest.raises(UsageError, match="no loader 'mmap': use some of hcfs, "):
        versions(["mmap"])


def test_first_tokens(loop_mount: Mount) -> None:
    """Eager and pipelined come to the same bits, from a model on hcfs of which nothing is left."""
    pytest.importorskip("torch")
    place = loop_mount.ns("first-token")
    words = ["weights", "bench", place, "--ttft", "--size", "400K", "--tokens", "5", "--rounds", "1"]
    result = json.loads(hcfs(*words, "--json", timeout=170).stdout)
    assert [each["tokens"] for each in result["prompts"]] == [5]
    for each in result["prompts"]:
        assert each["identical"]
        assert each["bound"] == min(each["t_io"]["median"], each["t_compute"]["median"])
        assert each["gained"]["median"] == pytest.approx(each["eager"]["median"] - each["pipelined"]["median"])
        # What wasn't hidden or slowed is the bookkeeping between the stages.
        rest = each["hidden"]["median"] - each["slowed"]["median"] - each["gained"]["median"]
        assert abs(rest) <= each["eager"]["median"] + each["pipelined"]["median"]
    assert os.listdir(place) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--dtype", "float16"], "--dtype means something only with --ttft"),
        (["--ttft", "--beside", "x"], "--beside means something only without --ttft"),
        (["--ttft", "--tokens", "a"], "--tokens takes numbers"),
        (["--ttft", "--tokens", "0"], "at least one round and one token"),
        (["--loaders", "mmap"], "no loader 'mmap'"),
        (["--rounds", "0"], "x>=1"),
    ],
)
def test_usage(tmp_path: Path, words: list[str], reason: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors(TENSORS))
    done = hcfs("weights", "bench", tmp_path, *words, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


def test_no_room_for_the_model(loop_mount: Mount) -> None:
    pytest.importorskip("torch")
    done = hcfs("weights", "bench", loop_mount.ns("full"), "--ttft", "--size", "1T", check=False)
    assert done.returncode == 1
    assert "has no room for a model of" in done.stderr
