"""Every tool that mounts, interrupted at any moment: nothing is left of what it makes.

The moments are drawn from a seed; where they hit depends on the machine, what is asserted doesn't."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from lab.harness import programs
from lab.harness.traces import Traces

COMMANDS: dict[str, tuple[list[str], int]] = {
    # The longest way through mounts of two kinds, and the one that was seen to leave a mount.
    "bench": (["bench", "commit", "--device", "64M", "--size-kb", "64"], 8),
    "scale": (["scale", "--sizes", "300", "--count", "30", "--idle", "0.1"], 2),
    "demo": (["lab.demo.steps"], 4),
    "torture": (["torture", "--writers", "2", "--readers", "1", "--seed", "1"], 2),
    "memory": (["memory", "opens", "--opens", "100000"], 2),
    "space": (["space", "operations", "--seed", "1"], 2),
    "exerciser": (["exerciser", "--seed", "1", "--operations", "1000000"], 2),
    "openers": (["openers", "--load", "0", "--openers", "4"], 2),
    "streaming": (["streaming"], 2),
    "uploads": (["uploads", "--seconds", "100"], 2),
    "damage": (["mounted-damage", "--seconds", "100"], 2),
}
"""Words, and how many moments."""

CASES = [(name, number) for name, (_, moments) in COMMANDS.items() for number in range(moments)]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_an_interrupted_tool_leaves_nothing(tmp_path: Path, name: str, case: int) -> None:
    chance = random.Random(f"{name} {case}")
    words = COMMANDS[name][0]
    traces = Traces(tmp_path / "t")
    traces.temporary.mkdir()
    with (tmp_path / "said").open("wb") as said:
        tool = subprocess.Popen(
            programs.command(*words) if name == "demo" else programs.lab(*words),
            env=traces.environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + 60
            while not traces.look():
                assert tool.poll() is None, (tmp_path / "said").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.01)
            pause(traces, chance.uniform(0, 3))
            number = SIGNALS[case % len(SIGNALS)] if name == "bench" else chance.choice(SIGNALS)
            send(tool, number, to_all=chance.random() < 0.5)
            if chance.random() < 0.5:
                pause(traces, chance.uniform(0, 0.3))
                send(tool, chance.choice(SIGNALS), to_all=chance.random() < 0.5)
            tool.wait(100)
        finally:
            if tool.poll() is None:
                tool.kill()
                tool.wait()
    traces.must_go()


def pause(traces: Traces, seconds: float) -> None:
    """With looks at what is being made."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        traces.look()
        time.sleep(0.02)


def send(tool: subprocess.Popen[bytes], number: signal.Signals, *, to_all: bool) -> None:
    """As a terminal does, or as kill does."""
    if tool.poll() is None:
        if to_all:
            os.killpg(tool.pid, number)
        else:
            os.kill(tool.pid, number)
