"""Whether the LMCache that is installed beside hcfs takes a configuration.

Run as a program it reads configurations from stdin, a line of JSON each, and has LMCache parse each and make its
adapter; it prints null where that says that it is healthy, else the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

TESTED = ("0.5.6", "0.5.5")
"""Versions that hcfs's tests have run with."""

_TIME_LIMIT = 120.0
"""Seconds: LMCache brings torch along."""

_MARK = "hcfs: "
"""LMCache prints what it likes beside."""


def installed() -> str | None:
    """Version of LMCache in this environment; None without one."""
    try:
        return metadata.version("lmcache")
    except metadata.PackageNotFoundError:
        return None


def ask(specs: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """For each configuration None when LMCache takes it, else its reason. Blocks for some seconds; in a process of its
    own, since LMCache configures logging, threads and signals for the whole process."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "hcfs.lmcache.accepts"],
            input="".join(f"{json.dumps(dict(spec))}\n" for spec in specs),
            capture_output=True,
            text=True,
            timeout=_TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"LMCache gave no answer within {_TIME_LIMIT:g} s"] * len(specs)
    marked = (line.removeprefix(_MARK) for line in done.stdout.splitlines() if line.startswith(_MARK))
    answers: list[str | None] = [json.loads(line) for line in marked]
    why = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    return answers + [why] * (len(specs) - len(answers))


def _reason(text: str) -> str | None:
    from lmcache.v1.distributed.l2_adapters import create_l2_adapter
    from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config

    try:
        (config,) = parse_args_to_l2_adapters_config(Namespace(l2_adapter=[text])).adapters
        adapter = create_l2_adapter(config)
        healthy = adapter.report_status()["is_healthy"]
        adapter.close()
    except Exception as error:  # whatever LMCache raises is its reason
        return " ".join(str(error).split()) or type(error).__name__
    return None if healthy else "its adapter says that it isn't healthy"


if __name__ == "__main__":
    for line in sys.stdin:
        print(_MARK + json.dumps(_reason(line)), flush=True)
    # Threads of LMCache's may outlive its adapters.
    os._exit(0)
