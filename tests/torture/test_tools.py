"""The torture tool and the exerciser, with budgets of seconds; the large ones are run by hand (docs/reliability.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
SECONDS = os.environ.get("HCFS_TORTURE_SECONDS", "30")
OPERATIONS = os.environ.get("HCFS_EXERCISER_OPERATIONS", "4000")
SEED = os.environ.get("HCFS_TORTURE_SEED", "1")


def run(script: str, *words: str | Path) -> None:
    """Run a tool; what it found is the failure's text."""
    process = subprocess.Popen(
        [sys.executable, str(TOOLS / script), *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, _ = process.communicate()
    except BaseException:
        process.terminate()  # It takes its mounts away.
        process.wait(60)
        raise
    assert process.returncode == 0, said


@pytest.mark.timeout(int(float(SECONDS)) + 300)
def test_torture(tmp_path: Path) -> None:
    """Kills, remounts and a known state outside."""
    run("torture_main.py", "--seed", SEED, "--seconds", SECONDS, "--directory", tmp_path / "torture")


@pytest.mark.timeout(int(OPERATIONS) // 10 + 300)
def test_exerciser() -> None:
    """One file against a model."""
    run("exerciser_main.py", "--seed", SEED, "--operations", OPERATIONS)
