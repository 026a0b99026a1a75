"""Tensors in layer order, from memory that is bounded: their bytes, types, errors and ends."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcfs.errors import HcfsError, UsageError
from hcfs.weights import DamagedWeights, UnreadableWeights, UnsupportedTensor, load, plan, stream
from hcfs.weights.dtypes import DTYPES
from hcfs.weights.pieces import SMALL, pieces_of
from hcfs.weights.weight_file import IO
from lab.harness.weights import Description, bytes_of, file_bytes, noise, open_files, safetensors, write_model

MIB = 1 << 20
IOS: tuple[IO, ...] = ("auto", "direct", "buffered")


def layers(count: int, size: int, seed: int = 0) -> dict[str, Description]:
    """`count` layers of one tensor each, of `size` bytes."""
    return {f"model.layers.{n}.w": ("U8", [size], noise(size, seed + n)) for n in range(count)}


@pytest.fixture
def nothing_left() -> Any:
    """At its end there are as many threads and descriptors as at the beginning."""
    threads, files = threading.active_count(), open_files()
    yield
    deadline = time.monotonic() + 30
    while (threading.active_count(), open_files()) != (threads, files):
        assert time.monotonic() < deadline, (threading.enumerate(), os.listdir("/proc/self/fd"))
        gc.collect()
        time.sleep(0.01)


@pytest.mark.parametrize("io", IOS)
@pytest.mark.parametrize("pad", [1, 8, 4096])
def test_every_dtype_in_torch_is_what_safetensors_makes(place: Path, io: IO, pad: int) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    kinds = [name for name, dtype in DTYPES.items() if dtype.torch and name != "F4"]
    tensors: dict[str, Description] = {}
    for number, name in enumerate(kinds):
        item = DTYPES[name].bits // 8
        data = bytes(noise(7 * 3 * item, number)) if name != "BOOL" else bytes([1, 0, 1] * 7)
        tensors[f"layers.{number}.w"] = (name, [7, 3], data)
        tensors[f"layers.{number}.scalar"] = (name, [], data[:item])
        tensors[f"layers.{number}.none"] = (name, [0, 5], b"")
    # A tensor that is large enough to be read by itself, at an address that its numbers may not have.
    tensors["odd"] = ("U8", [1], b"x")
    tensors["large"] = ("F64", [SMALL // 8 + 1], noise(SMALL + 8))
    path = place / "model.safetensors"
    path.write_bytes(safetensors(tensors, pad=pad))
    found = load(path, io=io)
    assert found.keys() == tensors.keys()
    theirs = load_file(path) if pad >= 8 else {}
    for name, (kind, shape, data) in tensors.items():
        assert bytes_of(found[name]) == data, name
        assert (list(found[name].shape), found[name].dtype) == (shape, getattr(torch, str(DTYPES[kind].torch))), name
        assert found[name].data_ptr() % max(1, found[name].element_size()) == 0
        if name in theirs:
            assert found[name].dtype == theirs[name].dtype
            assert bytes_of(theirs[name]) == data


def test_every_dtype_in_numpy(place: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    tensors: dict[str, Description] = {
        name: (name, [2, 2], noise(dtype.bits // 2, dtype.bits)) for name, dtype in DTYPES.items() if dtype.numpy
    }
    tensors["BOOL"] = ("BOOL", [2, 2], b"\0\1\1\0")
    path = place / "model.safetensors"
    path.write_bytes(safetensors(tensors))
    found = load(path, framework="numpy")
    for name, (_, shape, data) in tensors.items():
        assert (found[name].tobytes(), list(found[name].shape)) == (data, shape)
    assert found["BF16"].dtype == ml_dtypes.bfloat16
    assert found["BOOL"].dtype == np.bool_
    found["F32"][0, 0] = 1.5  # the consumer's own memory


def test_packed_elements_of_4_bits(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors({"a": ("F4", [3, 4], b"abcdef")}))
    (ours,) = load(path).values()
    assert (ours.dtype, list(ours.shape)) == (torch.float4_e2m1fn_x2, [3, 2])
    assert bytes_of(ours) == b"abcdef"
    assert list(load_file(path)["a"].shape) == [3, 2]
    path.write_bytes(safetensors({"a": ("F4", [4, 3], b"abcdef")}))
    with pytest.raises(UnsupportedTensor, match=r"'a' of .* last dimension is odd"):
        load(path)


@pytest.mark.parametrize(("framework", "dtype"), [("torch", "F6_E2M3"), ("numpy", "F6_E3M2"), ("numpy", "F4")])
def test_types_that_a_framework_lacks(tmp_path: Path, framework: Any, dtype: str, nothing_left: None) -> None:
    pytest.importorskip(framework)
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors({"a": ("U8", [1], b"x"), "b": (dtype, [8], bytes(DTYPES[dtype].bits))}))
    tensors = stream(path, framework=framework)
    assert next(tensors)[0] == "a"
    with pytest.raises(UnsupportedTensor, match=rf"'b' of .*{framework} has no type for {dtype}"):
        next(tensors)


@pytest.mark.parametrize(
    ("missing", "framework", "words"),
    [
        ("ml_dtypes", "numpy", "numpy has no type for BF16 .* install ml_dtypes, or use the framework torch"),
        ("numpy", "numpy", "numpy isn't installed"),
        ("torch", "torch", "torch isn't installed"),
    ],
)
def test_a_library_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, framework: Any, words: str, nothing_left: None
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors({"a": ("BF16", [1], b"ab")}))
    with pytest.raises(HcfsError, match=words):
        load(path, framework=framework)
    assert plan(path).nbytes == 2


def test_a_filesystem_that_refuses_direct_reads(tmp_path: Path, nothing_left: None) -> None:
    directory = tmp_path / "ramfs"
    directory.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "hcfs-test", str(directory)], check=True)
    try:
        path = directory / "model.safetensors"
        path.write_bytes(safetensors(layers(3, MIB + 5)))
        with pytest.raises(OSError, match="Invalid argument"):
            os.open(path, os.O_RDONLY | os.O_DIRECT)
        with stream(path, framework="numpy", io="direct") as tensors:
            assert [tensor.tobytes() for _, tensor in tensors] == [noise(MIB + 5, number) for number in range(3)]
            read = tensors.statistics()
        assert read.direct_bytes == 0 < read.buffered_bytes
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def test_a_shape_that_no_framework_takes(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_bytes({"a": {"dtype": "U8", "shape": [(1 << 64) - 1, 0], "data_offsets": [0, 0]}}))
    with pytest.raises(UnsupportedTensor, match="'a' of"):
        load(path, framework="numpy")


@pytest.mark.parametrize("size", [1, 511, 4095, 4096, 4097, 4 * 4096 + 1, SMALL - 1, SMALL + 4095, 4 * MIB + 511])
@pytest.mark.parametrize("io", ["direct", "buffered"])
def test_sizes_that_are_no_blocks(place: Path, size: int, io: IO) -> None:
    """ComfyUI#15602: what comes behind the last block must neither be lost nor doubled; st_size is exact."""
    path = place / "model.safetensors"
    content = safetensors({"a": ("U8", [size], noise(size)), "none": ("F32", [0], b"")}, pad=1)
    path.write_bytes(content)
    assert path.stat().st_size == len(content)
    (loaded, none) = load(path, framework="numpy", io=io).values()
    assert loaded.tobytes() == noise(size)
    assert none.shape == (0,)


def test_models_without_bytes(place: Path, nothing_left: None) -> None:
    """runai-model-streamer#43: files of empty tensors, or without any, end at once."""
    (place / "none.safetensors").write_bytes(file_bytes({}))
    assert load(place / "none.safetensors", framework="numpy") == {}
    (place / "empty.safetensors").write_bytes(safetensors({f"l.{n}.w": ("F32", [0, n], b"") for n in range(20)}))
    found = load(place / "empty.safetensors", framework="numpy")
    assert [each.shape for each in found.values()] == [(0, n) for n in range(20)]
    (place / "nothing.safetensors").write_bytes(b"")
    with pytest.raises(DamagedWeights, match="the file is empty"):
        load(place / "nothing.safetensors", framework="numpy")


def test_a_sharded_model_comes_in_layer_order_and_by_stage(place: Path, nothing_left: None) -> None:
    chance = random.Random(1)
    tensors: dict[str, Description] = {"model.embed.w": ("U8", [3 * MIB], noise(3 * MIB, 99))}
    for number in range(12):
        tensors[f"model.layers.{number}.norm"] = ("U8", [1000], noise(1000, number))
        tensors[f"model.layers.{number}.w"] = ("U8", [2 * MIB + number], noise(2 * MIB + number, 50 + number))
    tensors["lm_head.w"] = ("U8", [MIB], noise(MIB, 77))
    names = list(tensors)
    chance.shuffle(names)
    write_model(place / "model", [{name: tensors[name] for name in names[part::3]} for part in range(3)])
    with stream(place / "model", framework="numpy", budget=8 * MIB, io="direct") as found:
        stages = [(stage, group) for stage, group in found.stages()]
        statistics = found.statistics()
    assert [stage for stage, _ in stages] == ["embeddings", *(f"model.layers.{n}" for n in range(12)), "head"]
    assert {name: each.tobytes() for _, group in stages for name, each in group.items()} == {
        name: data for name, (_, _, data) in tensors.items()
    }
    assert 3 * MIB <= statistics.peak <= statistics.budget == 8 * MIB


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("budget", [MIB + 4096, 3 * MIB, None])
def test_never_more_than_the_budget_is_ahead(tmp_path: Path, threads: int, budget: int | None) -> None:
    """runai-model-streamer#68, by count: what is in memory and not handed over is what the budget allows."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors(layers(9, MIB)))
    with stream(path, framework="numpy", budget=budget, threads=threads) as tensors:
        for number, (name, tensor) in enumerate(tensors):
            assert name == f"model.layers.{number}.w"
            assert tensor.tobytes() == noise(MIB, number)
            time.sleep(0.002)  # so that the threads run ahead as far as they may
            assert tensors.statistics().peak <= tensors.statistics().budget
        peak = tensors.statistics().peak
    if budget is not None:
        assert peak > budget - MIB - 4096


def test_a_budget_that_is_too_small_is_refused_before_anything_is_read(tmp_path: Path, nothing_left: None) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors(layers(2, 2 * MIB)))
    with pytest.raises(UsageError, match=r"1048576 bytes can't hold 'model.layers.0.w' of .* give at least that"):
        stream(path, framework="numpy", budget=MIB)


def test_small_tensors_share_a_read_and_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors({f"layers.{n}.norm": ("U8", [1000], noise(1000, n)) for n in range(2000)}))
    assert len(pieces_of(plan(path).tensors)) == 1
    found = load(path, framework="numpy")
    assert all(found[f"layers.{n}.norm"].tobytes() == noise(1000, n) for n in range(0, 2000, 97))
    assert all(len(each.base.obj if hasattr(each.base, "obj") else each.base) == 1000 for each in found.values())


def test_only_some_tensors(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors(layers(6, 2 * MIB)))
    with stream(path, framework="numpy", only=lambda name: ".3." in name or ".5." in name) as tensors:
        assert [name for name, _ in tensors] == ["model.layers.3.w", "model.layers.5.w"]
        read = tensors.statistics()
    assert read.direct_bytes + read.buffered_bytes < 5 * MIB


@pytest.mark.parametrize("how", ["with", "close", "forget", "error", "thread"])
def test_a_stream_that_ends_early_leaves_nothing(place: Path, nothing_left: None, how: str) -> None:
    path = place / "model.safetensors"
    path.write_bytes(safetensors(layers(8, 2 * MIB)))
    tensors = stream(path, framework="numpy", budget=5 * MIB, threads=3)
    _, kept = next(tensors)
    if how == "with":
        with tensors:
            next(tensors)
    elif how == "close":
        tensors.close()
        tensors.close()
    elif how == "error":
        with pytest.raises(ZeroDivisionError), tensors:
            raise ZeroDivisionError
    elif how == "thread":
        other = threading.Thread(target=tensors.close)
        other.start()
        other.join()
    if how != "forget":
        with pytest.raises(HcfsError, match="was closed before its last tensor"):
            next(tensors)
    del tensors
    assert kept.tobytes() == noise(2 * MIB, 0)


def test_the_end_is_the_end(tmp_path: Path, nothing_left: None) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors(layers(2, 10)))
    tensors = stream(path, framework="numpy")
    assert len(list(tensors)) == 2
    assert list(tensors) == []
    with pytest.raises(StopIteration):
        next(tensors)


def test_a_file_that_is_cut_short_while_it_is_read(tmp_path: Path, nothing_left: None) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors(layers(8, 2 * MIB)))
    with stream(path, framework="numpy", budget=3 * MIB, threads=1) as tensors:
        assert next(tensors)[0] == "model.layers.0.w"
        os.truncate(path, 9 * MIB)
        with pytest.raises(DamagedWeights, match=r"ended at .* bytes while it was read"):
            list(tensors)


def test_a_file_that_was_replaced_after_it_was_planned(place: Path, nothing_left: None) -> None:
    path = place / "model.safetensors"
    path.write_bytes(safetensors(layers(1, 5000)))
    planned = plan(path)
    (place / "new").write_bytes(safetensors(layers(1, 5000, seed=9)))
    os.rename(place / "new", path)
    with pytest.raises(DamagedWeights, match="replaced or changed after its header was read"):
        load(planned, framework="numpy")
    path.unlink()
    with pytest.raises(UnreadableWeights, match="can't be opened: No such file"):
        load(planned, framework="numpy")


def test_an_error_comes_after_the_tensors_before_it(tmp_path: Path, nothing_left: None) -> None:
    write_model(tmp_path, [layers(3, MIB), {"zz": ("U8", [1], b"x")}])
    planned = plan(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    found = []
    tensors = stream(planned, framework="numpy")
    with pytest.raises(UnreadableWeights, match="00002"):
        found.extend(name for name, _ in tensors)
    assert found == [f"model.layers.{n}.w" for n in range(3)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"threads": 0}, "0 threads"),
        ({"io": "mmap"}, "no way 'mmap'"),
        ({"framework": "jax"}, "no framework 'jax'"),
        ({"framework": "numpy", "device": "cuda"}, "numpy has no device"),
        ({"framework": "torch", "device": "nonsense"}, "can't use the device 'nonsense'"),
        ({"framework": "torch", "device": "cuda:99"}, "can't use the device 'cuda:99'"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: dict[str, Any], words: str, nothing_left: None) -> None:
    if arguments.get("framework") == "torch":
        pytest.importorskip("torch")
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors(layers(1, 10)))
    with pytest.raises(UsageError, match=words):
        stream(path, **{"framework": "numpy", **arguments})
