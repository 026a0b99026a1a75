"""The time to a first token from cold weights: read everything and then compute, or compute each layer as it comes.

The first token needs every layer. So reading and computing can at best go on at the same time, and what pipelining
saves is at most the smaller of the two.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from hcfs.errors import HcfsError, UsageError
from hcfs.weights.bench.llama import Forward, Shape, shape_for, write
from hcfs.weights.bench.rounds import Progress, make_cold, measured, silent, spread
from hcfs.weights.plan import plan
from hcfs.weights.stream import stream
from hcfs.weights.tensors import maker

TOKENS = (5, 512, 2048)
DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Types of the weights, and of the arithmetic; bytes of each."""


def measure_first_token(
    path: str, shape: dict[str, int], tokens: int, pipelined: bool, device: str, budget: int | None
) -> dict[str, Any]:
    """One first token in this process (hcfs.weights.bench.child). Seconds: of everything, of waiting for weights, of
    computing; where reading comes first, waiting is reading. The weights are kept, as a server would."""
    import torch

    sizes = Shape(**shape)
    chance = torch.Generator().manual_seed(tokens)
    prompt = torch.randint(sizes.vocabulary, (tokens,), generator=chance).to(device)
    synchronize: Callable[[], None] = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    with torch.inference_mode():
        _warm_up(device)
        forward = Forward(sizes, prompt)
        kept, computing, waiting = [], 0.0, 0.0
        cpu, began = time.process_time(), time.perf_counter()
        with stream(path, device=device, budget=budget) as model:
            stages = iter(model.stages()) if pipelined else iter(list(model.stages()))
            waiting += time.perf_counter() - began
            while True:
                at = time.perf_counter()
                found = next(stages, None)
                waiting += time.perf_counter() - at
                if found is None:
                    break
                kept.append(found)
                at = time.perf_counter()
                forward.stage(*found)
                synchronize()
                computing += time.perf_counter() - at
            logits = forward.logits.float().cpu()
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    return {
        "seconds": seconds,
        "waiting_seconds": waiting,
        "computing_seconds": computing,
        "cpu_seconds": cpu_seconds,
        "token": int(logits.argmax()),
        "digest": hashlib.blake2b(logits.numpy().tobytes(), digest_size=16).hexdigest(),
        "finite": bool(logits.isfinite().all()),
    }


def _warm_up(device: str) -> None:
    """Start torch's threads and load its kernels, which a server has done long before."""
    import torch

    tiny = Shape(64, 1, 4, 2, 128, 256)
    forward = Forward(tiny, torch.arange(64, device=device))
    for name, stage in zip(("embeddings", "model.layers.0", "head"), tiny.tensors(), strict=True):
        forward.stage(name, {key: torch.ones(size, device=device) for key, size in stage.items()})


def first_tokens(
    directory: str,
    *,
    nbytes: int = 1400 << 20,
    dtype: str = "float32",
    tokens: Sequence[int] = TOKENS,
    rounds: int = 3,
    device: str = "cpu",
    budget: int | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Make a Llama of about `nbytes` in a directory of its own under `directory` (removed at the end), and time its
    first token for prompts of these lengths, eager and pipelined in turn, `rounds` times, each from cold. Blocks.

    For each length: T_io (reading alone) and T_compute (computing alone, weights in memory), from the eager runs; their
    smaller one, which is the most that pipelining can save; what it did save, negative where it lost; and where that
    went. `identical`: whether every run came to the same logits, bit for bit.
    """
    if dtype not in DTYPES:
        raise UsageError(f"there is no dtype {dtype!r} here: use one of {', '.join(DTYPES)}")
    if rounds < 1 or not tokens or min(tokens) < 1:
        raise UsageError("a first token takes at least one round and one token of prompt")
    maker("torch", device)  # which says what it lacks, before a model is made
    shape = shape_for(nbytes // DTYPES[dtype])
    made, place = shape.elements() * DTYPES[dtype], os.statvfs(directory)
    if place.f_bavail * place.f_frsize < made * 1.05:
        raise HcfsError(f"{directory} has no room for a model of {made} bytes; free some, or make a smaller one")
    fields = {name: getattr(shape, name) for name in Shape.__slots__}
    with tempfile.TemporaryDirectory(prefix="hcfs-first-token-", dir=directory) as model:
        written = write(model, shape, dtype)
        files = [each.path for each in plan(model).files]
        samples: dict[tuple[int, bool], list[dict[str, Any]]] = {}
        for number in range(rounds):
            for length in tokens:
                for pipelined in (False, True) if number % 2 == 0 else (True, False):
                    make_cold(files)
                    found = measured(
                        "first-token",
                        path=os.path.abspath(model),
                        shape=fields,
                        tokens=length,
                        pipelined=pipelined,
                        device=device,
                        budget=budget,
                    )
                    samples.setdefault((length, pipelined), []).append(found)
                    way = "pipelined" if pipelined else "eager"
                    progress(f"round {number + 1} of {rounds}, {length} tokens, {way}: {found['seconds']:.2f} s")
    return {
        "directory": directory,
        "model": {**fields, "dtype": dtype, "tensor_bytes": written},
        "device": device,
        "rounds": rounds,
        "prompts": [_prompt(length, samples[length, False], samples[length, True]) for length in tokens],
    }


def _prompt(length: int, eager: Sequence[dict[str, Any]], pipelined: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the runs of one length come to; medians of each round's own differences."""
    pairs = list(zip(eager, pipelined, strict=True))
    digests = {each["digest"] for pair in pairs for each in pair}
    t_io = spread([each["waiting_seconds"] for each in eager])
    t_compute = spread([each["computing_seconds"] for each in eager])
    return {
        "tokens": length,
        "t_io": t_io,
        "t_compute": t_compute,
        "bound": min(t_io["median"], t_compute["median"]),
        "eager": spread([each["seconds"] for each in eager]),
        "pipelined": spread([each["seconds"] for each in pipelined]),
        "gained": spread([one["seconds"] - other["seconds"] for one, other in pairs]),
        # gained = reading that was hidden - computing that became slower - the rest
        "hidden": spread([one["waiting_seconds"] - other["waiting_seconds"] for one, other in pairs]),
        "slowed": spread([other["computing_seconds"] - one["computing_seconds"] for one, other in pairs]),
        "cpu_eager": spread([each["cpu_seconds"] for each in eager])["median"],
        "cpu_pipelined": spread([each["cpu_seconds"] for each in pipelined])["median"],
        "identical": len(digests) == 1 and all(each["finite"] for pair in pairs for each in pair),
    }
