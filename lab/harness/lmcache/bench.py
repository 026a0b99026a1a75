"""`lmcache bench l2`, which exits with 0 also when stores or loads failed: its figures tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from lab.harness.lmcache.driver import QUIET

_RUN = "import sys; from lmcache.cli.main import main; sys.exit(main())"


def run_bench(spec: str, report: Path, *, size_kib: int, keys: int, in_flight: int, rounds: int) -> dict[str, Any]:
    """Store, look up and load `rounds` times `in_flight` batches of `keys` chunks, after one round of warming up.

    Returns the figures by operation ("Store", "Lookup", "Load"); fails when the tool does.
    """
    words = {
        "--l2-adapter": spec,
        "--num-keys": keys,
        "--in-flight": in_flight,
        "--data-size-kb": size_kib,
        "--rounds": rounds,
        "--warmup-rounds": 1,
        "--l1-align-bytes": 4096,
        "--lookup-max-hit-rate": 1.0,
        "--format": "json",
        "--output": report,
    }
    command = [sys.executable, "-W", "ignore", "-c", _RUN, "bench", "l2", "--no-skip-verify"]
    for word, value in words.items():
        command += [word, str(value)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=170, env={**os.environ, **QUIET})
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"All {keys * in_flight} keys data verified OK" in result.stdout, result.stdout
    metrics = json.loads(report.read_text())["metrics"]
    figures = {section["operation"]: section for name, section in metrics.items() if name.startswith("op_")}
    check(figures, keys * in_flight * rounds, rounds)
    return figures


def check(figures: dict[str, Any], total: int, rounds: int) -> None:
    """Every key of every round was stored, found and loaded."""
    assert set(figures) == {"Store", "Lookup", "Load"}, figures
    for operation, section in figures.items():
        seen = (section["rounds"], section["rounds_timed_out"], section["total_keys"], section["total_success"])
        assert seen == (rounds, 0, total, total), f"{operation}: {section}"
