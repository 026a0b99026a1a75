"""The tools that try mounts, with budgets of seconds; the large ones are run by hand (docs/reliability-mount.md)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lab.harness import programs

SECONDS = os.environ.get("HCFS_TORTURE_SECONDS", "30")
OPERATIONS = os.environ.get("HCFS_EXERCISER_OPERATIONS", "4000")
SPACE_OPERATIONS = os.environ.get("HCFS_SPACE_OPERATIONS", "1500")
SPACE_CYCLES = os.environ.get("HCFS_SPACE_CYCLES", "2")
OPENS = os.environ.get("HCFS_MEMORY_OPENS", "1500")
SEED = os.environ.get("HCFS_TORTURE_SEED", "1")


def run(name: str, *words: str | Path) -> None:
    """Run a command of the lab; what it found is the failure's text."""
    process = subprocess.Popen(
        programs.lab(name, *words),
        env=programs.environment(),
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
    run("torture", "--seed", SEED, "--seconds", SECONDS, "--directory", tmp_path / "torture")


@pytest.mark.timeout(int(OPERATIONS) // 10 + 300)
def test_exerciser() -> None:
    """One file against a model."""
    run("exerciser", "--seed", SEED, "--operations", OPERATIONS)


@pytest.mark.timeout(int(SPACE_OPERATIONS) // 10 + 300)
def test_space_is_told_truthfully() -> None:
    """Random operations of processes: status, statfs, du and fsck agree to the byte, and all of it comes back."""
    run("space", "operations", "--seed", SEED, "--operations", SPACE_OPERATIONS, "--processes", "2")


@pytest.mark.timeout(int(SPACE_CYCLES) * 60 + 300)
def test_space_comes_back() -> None:
    """Filled to the last block and drained."""
    run("space", "cycles", "--seed", SEED, "--cycles", SPACE_CYCLES, "--size", "32M")


def test_space_stays_in_long_runs() -> None:
    """Objects of mixed sizes on a full device; a run is its seed, so the bound is exact."""
    run("space", "fragmentation", "--seed", SEED, "--size", "512M", "--turnover", "6")


@pytest.mark.timeout(int(OPENS) // 50 + 300)
def test_opens_leave_nothing() -> None:
    """Memory, descriptors and handles."""
    run("memory", "opens", "--opens", OPENS)
