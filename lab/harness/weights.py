"""Safetensors files made byte by byte, good and bad."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

Description = tuple[str, list[int], bytes]
"""A tensor's dtype, shape and bytes."""


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    """A tensor in a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def file_bytes(header: Any, data: bytes = b"") -> bytes:
    """A file of a header (what JSON takes, or bytes as they are) and data."""
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(content).to_bytes(8, "little") + content + data


def safetensors(tensors: dict[str, Description], metadata: dict[str, str] | None = None, pad: int = 8) -> bytes:
    """A good file of these tensors in the order given; `pad` is what the header's length is a multiple of."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = entry(dtype, shape, at, at + len(data))
        at += len(data)
    content = json.dumps(header).encode()
    content += b" " * (-len(content) % pad)
    return file_bytes(content, b"".join(data for _, _, data in tensors.values()))


def write_model(directory: Path, shards: list[dict[str, Description]]) -> Path:
    """A directory of these shards with their index."""
    directory.mkdir(parents=True, exist_ok=True)
    where: dict[str, str] = {}
    for number, tensors in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        (directory / name).write_bytes(safetensors(tensors))
        where |= dict.fromkeys(tensors, name)
    index = {"metadata": {"total_size": 0}, "weight_map": where}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def noise(count: int, seed: int = 0) -> bytes:
    """Bytes that no two places have in common."""
    return random.Random(seed).randbytes(count)


def bytes_of(tensor: Any) -> bytes:
    """A tensor's elements as they lie in memory, of numpy or torch."""
    if hasattr(tensor, "untyped_storage"):
        import torch

        tensor = tensor.contiguous().reshape(-1).view(torch.uint8).numpy() if tensor.numel() else b""
    return bytes(tensor if isinstance(tensor, bytes) else tensor.tobytes())


def open_files() -> int:
    """Descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))
