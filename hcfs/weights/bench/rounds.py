"""Measurements one after the other, each in a process of its own, and what they come to."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from hcfs.errors import HcfsError
from hcfs.weights.residency import drop

Progress = Callable[[str], None]
"""Is told, a line each, what has just been measured."""


def silent(_: str) -> None:
    """A Progress that says nothing."""


def measured(name: str, **arguments: Any) -> dict[str, Any]:
    """One measurement of hcfs.weights.bench.child. HcfsError with the process's last line when it fails. Blocks."""
    command = [sys.executable, "-W", "ignore", "-m", "hcfs.weights.bench.child", name, json.dumps(arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise HcfsError(f"measuring {arguments.get('loader', name)} failed: {last}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def make_cold(files: Sequence[str]) -> None:
    """Let the kernel drop the files' pages. HcfsError when some stay: what is measured then wouldn't be cold."""
    for file in files:
        stayed = drop(file)
        if stayed:
            raise HcfsError(f"{stayed:.0%} of {file} stay in the page cache: end the programs that have it mapped")


def make_warm(files: Sequence[str]) -> None:
    """Read the files once, through the page cache."""
    for path in files:
        fd = os.open(path, os.O_RDONLY)
        try:
            while os.read(fd, 1 << 20):
                pass
        finally:
            os.close(fd)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, lowest and highest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}
