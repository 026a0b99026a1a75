"""One measurement in a process of its own: `python -m hcfs.weights.bench.child NAME JSON` prints a line of JSON."""

from __future__ import annotations

import gc
import hashlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from hcfs.weights.bench.first_token import measure_first_token
from hcfs.weights.bench.loaders import DROPPED, LOADERS, Model
from hcfs.weights.bench.process import forget_peak, peak

_PAGE = 4096


def measure_load(loader: str, path: str, files: list[str], warm_up: str, digest: bool) -> dict[str, Any]:
    """Load a model once. Seconds include opening, headers, and one access to each page of each tensor, without which a
    loader that maps files would have read nothing.

    warm_up: a small file that is loaded first, so that libraries are loaded and threads started. digest:
    whether to compute a checksum over names, types, shapes and bytes afterwards.
    """
    load, _ = LOADERS[loader]
    kept = {name: _touched(tensor) for name, tensor in load(Model(warm_up, [warm_up]))}
    kept.clear()
    gc.collect()
    before, cpu, began = forget_peak(), time.process_time(), time.perf_counter()
    count = 0
    for name, tensor in load(Model(path, files)):
        _touched(tensor)
        count += 1
        if loader not in DROPPED or digest:
            kept[name] = tensor
    seconds, cpu_seconds, most = time.perf_counter() - began, time.process_time() - cpu, peak()
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        # With a digest the tensors are kept that otherwise aren't.
        "peak_bytes": None if loader in DROPPED and digest else most - before,
        "tensors": count,
        "digest": digest_of(kept) if digest else None,
    }


def _touched(tensor: Any) -> Any:
    """The tensor, each of its pages read once."""
    if tensor.numel():
        _bytes(tensor)[::_PAGE].sum()
    return tensor


def _bytes(tensor: Any) -> Any:
    import torch

    return tensor.reshape(-1).view(torch.uint8)


def digest_of(tensors: dict[str, Any]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(f"{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode())
        if tensor.numel():
            found.update(_bytes(tensor).numpy())
    return found.hexdigest()


MEASUREMENTS: dict[str, Callable[..., dict[str, Any]]] = {"load": measure_load, "first-token": measure_first_token}

if __name__ == "__main__":
    print(json.dumps(MEASUREMENTS[sys.argv[1]](**json.loads(sys.argv[2]))))
