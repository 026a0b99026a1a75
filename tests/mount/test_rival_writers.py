"""Several processes rewrite one name: each open succeeds, though the file is replaced while the kernel walks to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WRITER = """
import os, sys
path, fill, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for _ in range(rounds):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(descriptor, bytes([fill]) * 5000)
    os.close(descriptor)
"""


def test_every_open_succeeds(kv: Path) -> None:
    """The kernel repeats an open that met a replaced inode once; so the first repetition must find a version."""
    command = [sys.executable, "-c", WRITER, kv / "same"]
    writers = [subprocess.Popen([*command, str(fill), "150"], stderr=subprocess.PIPE, text=True) for fill in (1, 2, 3)]
    complaints = [writer.communicate(timeout=120)[1] for writer in writers]
    assert complaints == ["", "", ""]
    content = (kv / "same").read_bytes()
    assert content in [bytes([fill]) * 5000 for fill in (1, 2, 3)]
