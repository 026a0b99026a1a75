"""The examples of docs/semantics.md, run as they stand: `$ ` before a command line, then exactly what it prints."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "semantics.md"
EXAMPLES = re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(kv: Path, example: str) -> None:
    lines = example.splitlines()
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    printed = [line for line in lines if not line.startswith("$ ")]
    done = subprocess.run(
        ["bash", "-euc", "\n".join(commands)], cwd=kv, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.splitlines(), done.stderr, done.returncode) == (printed, "", 0)
