"""Programs of this checkout that a test or another program starts: processes of their own, in any directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""Of the checkout."""


def command(module: str, *words: object) -> list[str]:
    """The words that run a module of the laboratory; with `environment()`, since the laboratory isn't installed."""
    return [sys.executable, "-P", "-m", module, *map(str, words)]


def lab(name: str, *words: object) -> list[str]:
    """The words of `tools/lab NAME WORDS`, with the interpreter that runs this."""
    return command("lab", name, *words)


def environment() -> dict[str, str]:
    """This process's own, in which this checkout's `lab` and `hcfs` are found first."""
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", str(ROOT))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *others])}
