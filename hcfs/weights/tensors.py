"""From memory that was read to a tensor of the framework that was asked for."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, get_args

from hcfs.errors import HcfsError, UsageError
from hcfs.weights.dtypes import DTYPES
from hcfs.weights.errors import UnsupportedTensor
from hcfs.weights.plan import PlannedTensor

Framework = Literal["torch", "numpy"]
"""What tensors are made: `torch.Tensor` or `numpy.ndarray`."""
Memory = mmap.mmap | bytearray
Maker = Callable[[PlannedTensor, Memory | None, int], Any]
"""Takes a tensor's description, memory (None when it has no bytes) and offset there. The tensor that it returns keeps
the memory as long as it lives, unless it was copied to another device."""


def maker(framework: str, device: str) -> Maker:
    """The function that makes tensors. UsageError for an unknown framework or an impossible device; HcfsError when the
    framework isn't installed."""
    if framework not in get_args(Framework):
        raise UsageError(f"there is no framework {framework!r} here: use {' or '.join(get_args(Framework))}")
    if framework == "numpy":
        if device != "cpu":
            raise UsageError(f"numpy has no device {device!r}: use cpu, or the framework torch")
        return _numpy_maker()
    return _torch_maker(device)


def _numpy_maker() -> Maker:
    try:
        import numpy as np
    except ImportError:
        raise _not_installed("numpy") from None
    more: Any = None
    with suppress(ImportError):
        import ml_dtypes as more  # bfloat16 and the 8-bit floats, which numpy itself lacks

    def make(tensor: PlannedTensor, memory: Memory | None, offset: int) -> Any:
        name = DTYPES[tensor.info.dtype].numpy
        kind = None if name is None else getattr(np, name, None) or getattr(more, name, None)
        if name == "bool":
            kind = np.bool_
        if kind is None:
            missing = name is not None and more is None
            remedy = "install ml_dtypes, or use the framework torch" if missing else "use the framework torch"
            raise _no_type(tensor, "numpy", remedy)
        if memory is None:
            return np.empty(tensor.info.shape, kind)
        count = tensor.info.nbytes // np.dtype(kind).itemsize
        return np.frombuffer(memory, kind, count, offset).reshape(tensor.info.shape)

    return _checked(make)


def _torch_maker(device: str) -> Maker:
    try:
        import torch
    except ImportError:
        raise _not_installed("torch") from None
    try:
        target = torch.device(device)
        torch.empty(0, device=target)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"torch can't use the device {device!r}: {str(error).splitlines()[0]}") from None

    def make(tensor: PlannedTensor, memory: Memory | None, offset: int) -> Any:
        name = DTYPES[tensor.info.dtype].torch
        kind = None if name is None else getattr(torch, name, None)
        if kind is None:
            raise _no_type(tensor, "torch", f"torch {torch.__version__} has none that fits {tensor.info.dtype}")
        shape = list(tensor.info.shape)
        if tensor.info.dtype == "F4":
            if shape[-1] % 2:
                raise _no_type(tensor, "torch", "its last dimension is odd, and torch packs two elements into a byte")
            shape[-1] //= 2
        if memory is None:
            return torch.empty(shape, dtype=kind, device=target)
        count = tensor.info.nbytes // kind.itemsize
        made = torch.frombuffer(memory, dtype=kind, count=count, offset=offset).reshape(shape)
        return made if target.type == "cpu" else made.to(target)

    return _checked(make)


def _checked(make: Maker) -> Maker:
    """What the framework itself refuses (a shape of 2^63 by 0, no memory on the device) names the tensor."""

    def checked(tensor: PlannedTensor, memory: Memory | None, offset: int) -> Any:
        try:
            return make(tensor, memory, offset)
        except (ValueError, RuntimeError, OverflowError, TypeError) as error:
            raise UnsupportedTensor(
                tensor.file.path, tensor.info.name, str(error).splitlines()[0] or type(error).__name__
            ) from error

    return checked


def _no_type(tensor: PlannedTensor, framework: str, remedy: str) -> UnsupportedTensor:
    reason = f"{framework} has no type for {tensor.info.dtype} of shape {list(tensor.info.shape)}; {remedy}"
    return UnsupportedTensor(tensor.file.path, tensor.info.name, reason)


def _not_installed(name: str) -> HcfsError:
    return HcfsError(f"{name} isn't installed: pip install {name}, or ask for the other framework")


def aligned(memory: mmap.mmap, offset: int, tensor: PlannedTensor) -> int:
    """The tensor's offset in its memory, moved to the memory's beginning where its elements' size doesn't divide the
    offset: a header may have any length, and processors and frameworks want numbers at multiples of their size."""
    if offset % max(1, DTYPES[tensor.info.dtype].bits // 8) == 0:
        return offset
    with memoryview(memory) as whole:
        whole[: tensor.info.nbytes] = whole[offset : offset + tensor.info.nbytes]
    return 0
