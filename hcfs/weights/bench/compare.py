"""Loaders beside each other: the same model, cold and warm, in turn, on one filesystem or several."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from typing import Any

from hcfs.errors import HcfsError
from hcfs.weights.bench.loaders import LOADERS_DEFAULT, versions
from hcfs.weights.bench.rounds import Progress, make_cold, make_warm, measured, silent, spread
from hcfs.weights.plan import Plan, plan

REFERENCE = "safetensors"
"""The loader whose rate in the same round the others' rates are divided by."""
_TINY = (60).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'.ljust(60) + bytes(4)


def compare(
    paths: Sequence[str],
    *,
    loaders: Sequence[str] = LOADERS_DEFAULT,
    rounds: int = 3,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Load the model at each of `paths` (the same model, on different filesystems) with each loader, cold and warm,
    `rounds` times, in turn. Blocks.

    The result has for each case the rate in MB/s and its ratio to REFERENCE's (median, lowest, highest), and medians of
    peak memory and CPU seconds. The first round checks that all of them came to the same names, types, shapes and
    bytes: HcfsError when not. Loaders that aren't installed or fail are left out, with the reason in `left_out`.
    """
    known = versions(loaders)
    left_out = {name: "not installed" for name, version in known.items() if version is None}
    if len(left_out) == len(known):
        raise HcfsError(f"none of {', '.join(known)} is installed; install torch, and 'hcfs[weights-bench]' for others")
    plans = [plan(path) for path in paths]
    cases = [(each, cold, name) for each in plans for cold in (True, False) for name in loaders]
    samples: dict[tuple[str, bool, str], list[dict[str, Any]]] = {}
    digests: dict[str, str] = {}
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as tiny:
        tiny.write(_TINY)
        tiny.flush()
        for number in range(rounds + 1):
            # The first round looks at the bytes and counts nowhere; each later one begins elsewhere.
            at = (number * 5) % len(cases)
            for each, cold, name in cases[at:] + cases[:at]:
                if name in left_out or (number == 0 and not cold):
                    continue
                try:
                    found = _one(each, cold, name, tiny.name, digest=number == 0)
                except HcfsError as error:
                    left_out[name] = str(error)
                    continue
                if number == 0:
                    digests[f"{name} on {each.path}"] = found["digest"]
                else:
                    samples.setdefault((each.path, cold, name), []).append(found)
                progress(f"round {number} of {rounds}: {name} on {each.path} {'cold' if cold else 'warm'}")
            if len(set(digests.values())) > 1:
                raise HcfsError(f"the loaders differ in what they loaded: {digests}; compare the files themselves")
    return {
        "paths": list(paths),
        "tensor_bytes": plans[0].nbytes,
        "rounds": rounds,
        "versions": {name: version for name, version in known.items() if name not in left_out},
        "left_out": left_out,
        "bytes_equal": len(set(digests.values())) == 1,
        "cases": [
            _case(samples, path, cold, name, plans[0].nbytes) for path, cold, name in samples if name not in left_out
        ],
    }


def _one(model: Plan, cold: bool, loader: str, tiny: str, digest: bool) -> dict[str, Any]:
    files = [each.path for each in model.files]
    (make_cold if cold else make_warm)(files)
    path = os.path.abspath(model.path)
    return measured("load", loader=loader, path=path, files=files, warm_up=tiny, digest=digest)


def _case(
    samples: dict[tuple[str, bool, str], list[dict[str, Any]]], path: str, cold: bool, name: str, nbytes: int
) -> dict[str, Any]:
    own = samples[path, cold, name]
    seconds = [each["seconds"] for each in own]
    case: dict[str, Any] = {
        "path": path,
        "cache": "cold" if cold else "warm",
        "loader": name,
        "mb_s": spread([nbytes / each / 1e6 for each in seconds]),
        "peak_bytes": int(spread([each["peak_bytes"] for each in own])["median"]),
        "cpu_seconds": spread([each["cpu_seconds"] for each in own])["median"],
    }
    reference = [each["seconds"] for each in samples.get((path, cold, REFERENCE), [])]
    if len(reference) == len(seconds):
        case["ratio"] = spread([theirs / ours for theirs, ours in zip(reference, seconds, strict=True)])
    return case
