"""A safetensors file's header: eight bytes of length (little-endian), JSON of that length, then the tensors' bytes.

Tensors lie one behind the other without gaps, from the end of the header to the end of the file. Source: "Format" in
safetensors' README and `Metadata::validate` in safetensors/src/tensor.rs of 0.8. What that refuses is refused here; two
more things are: a name that occurs twice (the README forbids it, the package keeps one of them), and a tensor described
by an array instead of an object.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

from hcfs.weights.dtypes import DTYPES
from hcfs.weights.errors import DamagedWeights, UnreadableWeights

LENGTH_BYTES = 8
HEADER_MAX = 100_000_000
"""Bytes; the package's own limit (MAX_HEADER_SIZE)."""
_SIZE_END = 1 << 64
_METADATA = "__metadata__"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor in a file."""

    name: str
    dtype: str
    """A key of DTYPES."""
    shape: tuple[int, ...]
    start: int
    """Offset of its first byte in the file."""
    end: int
    """Offset behind its last byte."""

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says about itself, checked against the file's length."""

    path: str
    file_bytes: int
    identity: tuple[int, int, int]
    """Device, inode and time of the last change (ns): another file under this name has another identity."""
    tensors: tuple[TensorInfo, ...]
    """In the order of their bytes."""
    metadata: dict[str, str]
    """The writer's own notes (`__metadata__`)."""


def read_header(path: str) -> Header:
    """Read and check the header of the file at `path`. Blocks; reads nothing but the header, at most HEADER_MAX bytes.

    DamagedWeights when the file isn't safetensors, UnreadableWeights when a system call fails.
    """
    was_there = os.path.exists(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            content = _header_bytes(path, fd, status.st_size)
        finally:
            os.close(fd)
    except OSError as error:
        raise UnreadableWeights(path, error, was_there=was_there) from error
    identity = (status.st_dev, status.st_ino, status.st_mtime_ns)
    tensors, metadata = parse_header(path, content, status.st_size - LENGTH_BYTES - len(content))
    return Header(path, status.st_size, identity, tensors, metadata)


def _header_bytes(path: str, fd: int, file_bytes: int) -> bytes:
    if file_bytes == 0:
        raise DamagedWeights(path, "the file is empty")
    if file_bytes < LENGTH_BYTES:
        raise DamagedWeights(path, f"{file_bytes} bytes are too few for the length of a header")
    length = int.from_bytes(_pread(path, fd, LENGTH_BYTES, 0), "little")
    if length > HEADER_MAX:
        raise DamagedWeights(path, f"its header claims {length} bytes, and {HEADER_MAX} is the most")
    if length > file_bytes - LENGTH_BYTES:
        raise DamagedWeights(path, f"its header claims {length} bytes, and the file has {file_bytes} in all")
    return _pread(path, fd, length, LENGTH_BYTES)


def _pread(path: str, fd: int, length: int, offset: int) -> bytes:
    """Exactly `length` bytes: one call may return less."""
    parts = []
    while length:
        part = os.pread(fd, length, offset)
        if not part:
            raise DamagedWeights(path, f"it ended at {offset} bytes while it was read")
        parts.append(part)
        length -= len(part)
        offset += len(part)
    return b"".join(parts)


def parse_header(path: str, content: bytes, data_bytes: int) -> tuple[tuple[TensorInfo, ...], dict[str, str]]:
    """The tensors and notes in a header's JSON, for a file with `data_bytes` behind it. DamagedWeights names `path`."""
    fields = _json_object(path, content)
    metadata = _metadata(path, fields.pop(_METADATA, None))
    data_start = LENGTH_BYTES + len(content)
    tensors = sorted(
        (_tensor(path, name, value, data_start) for name, value in fields.items()),
        key=lambda each: (each.start, each.end),
    )
    expected = data_start
    for each in tensors:
        if each.start != expected:
            what = "overlaps the one before it" if each.start < expected else "leaves a gap before it"
            raise DamagedWeights(path, f"tensor {each.name!r} {what} ({each.start} where {expected} was due)")
        expected = each.end
    if expected != data_start + data_bytes:
        there, due = data_start + data_bytes, expected
        what = "truncated" if there < due else "followed by bytes that belong to no tensor"
        raise DamagedWeights(path, f"it is {what} ({there} bytes where its tensors end at {due})")
    return tuple(tensors), metadata


def _json_object(path: str, content: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(content.decode(), object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_whole)
    except UnicodeDecodeError as error:
        raise DamagedWeights(path, f"its header isn't UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise DamagedWeights(path, "its header is nested too deeply") from None
    except ValueError as error:
        raise DamagedWeights(path, f"its header isn't JSON as safetensors has it ({error})") from None
    if not isinstance(fields, dict):
        raise DamagedWeights(path, "its header isn't a JSON object")
    return fields


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{twice!r} occurs twice")
    for name in found:
        name.encode()  # a lone surrogate is no text: UnicodeEncodeError is a ValueError
    return found


def _whole(text: str) -> int:
    """The package reads unsigned numbers: `-0` is none."""
    return -1 if text == "-0" else int(text)


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _metadata(path: str, value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise DamagedWeights(path, f"{_METADATA} in its header is not an object of strings")
    return value


def _tensor(path: str, name: str, value: Any, data_start: int) -> TensorInfo:
    if not isinstance(value, dict) or not {"dtype", "shape", "data_offsets"} <= value.keys():
        raise DamagedWeights(path, f"tensor {name!r} lacks dtype, shape or data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise DamagedWeights(path, f"tensor {name!r} has the unknown dtype {dtype!r}")
    if not _sizes(shape):
        raise DamagedWeights(path, f"the shape of tensor {name!r} is not a list of sizes")
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise DamagedWeights(path, f"the data_offsets of tensor {name!r} are not a start and an end")
    bits = 1
    for factor in (*shape, DTYPES[dtype].bits):
        bits *= factor
        if bits >= _SIZE_END:
            raise DamagedWeights(path, f"the shape of tensor {name!r} overflows")
    if bits % 8:
        raise DamagedWeights(path, f"tensor {name!r} ends within a byte")
    if bits // 8 != offsets[1] - offsets[0]:
        raise DamagedWeights(
            path,
            f"tensor {name!r} has {offsets[1] - offsets[0]} bytes where its shape and dtype make {bits // 8}",
        )
    return TensorInfo(name, dtype, tuple(shape), data_start + offsets[0], data_start + offsets[1])


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int and 0 <= each < _SIZE_END for each in value)
