"""Weight files on a real hcfs: what other loaders do there, damage in the middle of a model, long reads, memory."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from mount.damage import flip

from hcfs.weights import UnreadableWeights, plan, stream
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.weights import Description, bytes_of, noise, safetensors, write_model

MIB = 1 << 20
WARNINGS = (r"quarantin", r"checksum", r"mismatch", r"verif")


def model(count: int, size: int) -> dict[str, Description]:
    return {f"model.layers.{n}.w": ("U8", [size], noise(size, 1000 + n)) for n in range(count)}


def test_the_packages_own_loaders_on_the_mount(place: Path) -> None:
    """safetensors#195: safe_open failed on a FUSE mount. Lazily, whole, by slices, with mmap and with pread."""
    torch = pytest.importorskip("torch")
    from safetensors import safe_open
    from safetensors.torch import load_file

    tensors: dict[str, Description] = {**model(3, MIB), "f": ("F32", [2, 2], noise(16)), "none": ("F32", [0], b"")}
    path = place / "model.safetensors"
    path.write_bytes(safetensors(tensors))
    for found in (load_file(path), load_file(path, backend="pread"), dict(stream(path))):
        assert {name: bytes_of(each) for name, each in found.items()} == {
            name: each[2] for name, each in tensors.items()
        }
    with safe_open(path, "pt") as lazy:
        assert bytes_of(lazy.get_tensor("model.layers.1.w")) == tensors["model.layers.1.w"][2]
        part = lazy.get_slice("model.layers.2.w")[1000:5000]
        assert bytes_of(part) == tensors["model.layers.2.w"][2][1000:5000]
        assert lazy.get_tensor("f").dtype == torch.float32


@pytest.mark.parametrize("io", ["direct", "buffered"])
def test_damage_in_the_middle_reaches_the_consumer_and_the_file_is_gone(
    make_mount: Callable[..., Mount], io: str
) -> None:
    mount = make_mount(loop=True, allow_warnings=WARNINGS)
    tensors = model(6, MIB)
    directory = write_model(mount.ns("w") / "model", [model(3, MIB), {k: tensors[k] for k in list(tensors)[3:]}])
    mount.umount()  # what the writer left in the page cache would hide what becomes of the medium
    mount.mount()
    flip(mount.source, tensors["model.layers.4.w"][2], 300_000)
    found = {}
    layers = stream(directory, framework="numpy", io=io, budget=3 * MIB)
    with pytest.raises(UnreadableWeights) as failure:
        found.update((name, tensor.tobytes()) for name, tensor in layers)
    shard = directory / "model-00002-of-00002.safetensors"
    assert failure.value.errno == errno.EIO
    assert str(shard) in str(failure.value)
    assert "didn't verify" in str(failure.value)
    assert found == {name: tensors[name][2] for name in list(tensors)[:4]}
    assert not shard.exists()
    with pytest.raises(Exception, match="1 of its 2 shards are missing"):
        plan(directory)


@pytest.mark.parametrize("load", ["at once", "after the plan"])
def test_damage_where_open_verifies(make_mount: Callable[..., Mount], load: str) -> None:
    """There a damaged file is absent from its opening on: whoever loads it is told so, and where to look."""
    mount = make_mount(size="64M", allow_warnings=[r"quarantin", r"checksum"])
    hcfs("ns", "create", mount.dir, "models", "--verify", "open")
    content = noise(300_000, 7)
    path = mount.dir / "models" / "model.safetensors"
    path.write_bytes(safetensors({"w": ("U8", [300_000], content)}))
    found = plan(path)
    mount.umount()
    mount.mount()
    flip(mount.source, content, 1000)
    if load == "at once":
        done = hcfs("weights", "load", path, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        said = done.stderr
    else:
        with pytest.raises(UnreadableWeights) as failure, stream(found) as tensors:
            for _ in tensors:
                pass
        said = str(failure.value)
    assert f"{path} can't be " in said
    assert "it is damaged" in said
    assert ".hcfs/quarantine" in said
    assert len(os.listdir(mount.dir / ".hcfs" / "quarantine")) == 1


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "buffered"])
@pytest.mark.parametrize("size", [64 * MIB, 256 * MIB])
def test_one_read_call_returns_all_that_was_asked(loop_mount: Mount, size: int, direct: bool) -> None:
    """ServerlessLLM#60: a read of half of what was asked was taken for the whole. A signal meanwhile is survived."""
    path = loop_mount.ns("long") / "file"
    block = noise(MIB, 3)
    with path.open("wb") as file:
        for _ in range(size // MIB):
            file.write(block)
        file.write(b"end")
    program = (
        "import mmap, os, signal, sys\n"
        "path, size, direct = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])\n"
        "signal.signal(signal.SIGUSR1, lambda *_: None)\n"
        "fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))\n"
        "memory = mmap.mmap(-1, size + 4096)\n"
        "view = memoryview(memory)\n"
        "print('ready', flush=True)\n"
        "count = os.preadv(fd, [view[:size]], 0)\n"
        "last = os.preadv(fd, [view[size:]], size)\n"
        "print(count, last, all(view[at:at + (1 << 20)] == view[:1 << 20] for at in range(0, size, 1 << 20)))\n"
    )
    command = [sys.executable, "-c", program, str(path), str(size), str(int(direct))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    ended = threading.Event()

    def pester() -> None:
        while not ended.wait(0.02):
            process.send_signal(signal.SIGUSR1)

    signals = threading.Thread(target=pester)
    signals.start()
    try:
        printed, _ = process.communicate(timeout=120)
    finally:
        ended.set()
        signals.join()
        path.unlink()
    assert printed.split() == [str(size), "3", "True"]


def test_memory_stays_at_the_budget_while_a_model_passes(loop_mount: Mount) -> None:
    """runai-model-streamer#68: peak memory was twice the file. Here a consumer that keeps nothing needs the budget and
    a tensor, whatever the file has."""
    path = loop_mount.ns("peak") / "model.safetensors"
    path.write_bytes(safetensors(model(40, 4 * MIB)))
    program = (
        "import json, sys\n"
        "from hcfs.weights import stream\n"
        "def peak():\n"
        "    fields = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "    return int(fields['VmHWM'].split()[0]) * 1024\n"
        "with stream(sys.argv[1], framework='numpy', budget=5 << 20, io=sys.argv[2]) as warm: next(warm)\n"
        "open('/proc/self/clear_refs', 'w').write('5')\n"
        "before = peak()\n"
        "with stream(sys.argv[1], framework='numpy', budget=20 << 20, io=sys.argv[2]) as tensors:\n"
        "    total = sum(tensor.nbytes for _, tensor in tensors)\n"
        "    held = tensors.statistics().peak\n"
        "print(json.dumps([peak() - before, total, held]))\n"
    )
    try:
        for io in ("direct", "buffered"):
            done = subprocess.run(
                [sys.executable, "-c", program, str(path), io], check=True, capture_output=True, text=True, timeout=120
            )
            grown, total, held = json.loads(done.stdout)
            assert total == 40 * 4 * MIB
            assert held <= 20 * MIB
            # The budget, the tensor that the loop's variable still holds, and the threads' own stacks and objects.
            assert grown < (20 + 4 + 6) * MIB
    finally:
        path.unlink()


def test_direct_reads_leave_the_page_cache_alone(loop_mount: Mount) -> None:
    from hcfs.weights.residency import drop, resident_fraction

    path = loop_mount.ns("cache") / "model.safetensors"
    path.write_bytes(safetensors(model(4, 2 * MIB)))
    size = path.stat().st_size

    def resident() -> float:
        fd = os.open(path, os.O_RDONLY)
        try:
            return resident_fraction(fd, 0, size)
        finally:
            os.close(fd)

    assert drop(path) == resident() == 0
    ways: dict[str, list[bool]] = {}
    for io in ("direct", "auto", "buffered", "auto"):
        with stream(path, framework="numpy", io=io) as tensors:
            for _ in tensors:
                pass
            read = tensors.statistics()
        # The header alone was read through the cache, with what the kernel reads ahead of it.
        ways.setdefault(io, []).append(read.direct_bytes > read.buffered_bytes)
        if io == "buffered":
            assert resident() == 1
    assert ways == {"direct": [True], "auto": [True, False], "buffered": [False]}
    path.unlink()
