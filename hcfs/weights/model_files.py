"""Which files make up a model: one file, or a directory with an index of shards."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from hcfs.weights.errors import DamagedWeights, UnreadableWeights
from hcfs.weights.header import HEADER_MAX, Header, read_header

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_SUFFIX = ".safetensors"
_INDEX_SUFFIX = ".safetensors.index.json"


def read_headers(path: str) -> list[Header]:
    """The checked headers of a model's files, in natural order of their names. Blocks.

    `path` is a file, an index (`*.safetensors.index.json`) or a directory. In a directory `model.safetensors` comes
    first, then `model.safetensors.index.json` (transformers looks in that order), then all its `*.safetensors`.
    DamagedWeights also where shards are missing, hold one name twice, or lack a tensor that the index promises.
    """
    if path.endswith(_INDEX_SUFFIX):
        return _indexed(path)
    if not os.path.isdir(path):
        return [read_header(path)]
    if os.path.exists(os.path.join(path, SINGLE)):
        return [read_header(os.path.join(path, SINGLE))]
    if os.path.exists(os.path.join(path, INDEX)):
        return _indexed(os.path.join(path, INDEX))
    try:
        names = sorted((name for name in os.listdir(path) if name.endswith(_SUFFIX)), key=natural)
    except OSError as error:
        raise UnreadableWeights(path, error) from error
    if not names:
        raise DamagedWeights(path, f"the directory has no {INDEX} and no file that ends in {_SUFFIX}")
    headers = [read_header(os.path.join(path, name)) for name in names]
    _refuse_doubles(headers)
    return headers


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A sorting key by which `layers.2` comes before `layers.10`."""
    parts = re.findall(r"([0-9]{1,18})|([^0-9]+)", text)
    return tuple((0, int(digits), digits) if digits else (1, 0, other) for digits, other in parts)


def _indexed(index: str) -> list[Header]:
    where = _weight_map(index)
    directory = os.path.dirname(index)
    shards = sorted(set(where.values()), key=natural)
    missing = [name for name in shards if not os.path.exists(os.path.join(directory, name))]
    if missing:
        raise DamagedWeights(index, f"{len(missing)} of its {len(shards)} shards are missing ({_few(missing)})")
    headers = [read_header(os.path.join(directory, name)) for name in shards]
    _refuse_doubles(headers)
    has = {name: {each.name for each in header.tensors} for name, header in zip(shards, headers, strict=True)}
    lost = [name for name, shard in where.items() if name not in has[shard]]
    if lost:
        raise DamagedWeights(
            index, f"{len(lost)} tensors are not in the shards that it names ({lost[0]!r} in {where[lost[0]]})"
        )
    return headers


def _weight_map(index: str) -> dict[str, str]:
    """The index's tensor names and the shards that it says hold them."""
    try:
        with open(index, "rb") as file:
            content = file.read(HEADER_MAX + 1)
    except OSError as error:
        raise UnreadableWeights(index, error) from error
    if len(content) > HEADER_MAX:
        raise DamagedWeights(index, f"an index of more than {HEADER_MAX} bytes is none")
    try:
        document: Any = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise DamagedWeights(index, f"it isn't JSON ({error})") from None
    where = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(where, dict) or not all(isinstance(name, str) for name in where.values()):
        raise DamagedWeights(index, "it has no weight_map from tensors to files")
    # An index comes from elsewhere: it may not name files outside of its model's directory.
    outside = [name for name in where.values() if name in ("", ".", "..") or "/" in name or "\0" in name]
    if outside:
        raise DamagedWeights(index, f"its weight_map names {outside[0]!r}, which is no file beside it")
    return where


def _refuse_doubles(headers: list[Header]) -> None:
    found: dict[str, str] = {}
    for header in headers:
        for each in header.tensors:
            if each.name in found:
                other = os.path.basename(found[each.name])
                raise DamagedWeights(header.path, f"tensor {each.name!r} is in {other} too")
            found[each.name] = header.path


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
