"""Names that are replaced all the time, on a real kernel: whoever opens or cuts one never hears of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LOOP = """
import os, sys, time
what, path, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
ends, count = time.monotonic() + seconds, 0
def replace():
    temporary = f"{path}.{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(fd, b"x" * 5000)
    os.close(fd)
    os.rename(temporary, path)
def read():
    fd = os.open(path, os.O_RDONLY)
    assert len(os.read(fd, 10000)) in (100, 5000)
    os.close(fd)
def write():
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(fd, b"y" * 5000)
    os.close(fd)
def truncate():
    os.truncate(path, 100)
while time.monotonic() < ends:
    globals()[what]()
    count += 1
print(count)
"""


@pytest.mark.parametrize(
    "together", [("replace", "replace", "read", "read"), ("write", "write", "read"), ("replace", "write", "truncate")]
)
def test_every_call_succeeds(kv: Path, together: tuple[str, ...]) -> None:
    (kv / "name").write_bytes(b"x" * 5000)
    command = [sys.executable, "-S", "-E", "-c", LOOP]
    loops = [
        subprocess.Popen([*command, what, kv / "name", "4"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for what in together
    ]
    for loop, what in zip(loops, together, strict=True):
        said, complaint = loop.communicate(timeout=60)
        assert complaint == "", what
        assert int(said) > 5
