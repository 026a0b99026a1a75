"""What is in a chunk: a function of its file's name, so that both sides of the pipe can make and check it."""

from __future__ import annotations

import random


def content(name: str, version: int, length: int) -> bytes:
    """`length` pseudo-random bytes, different for each name and version."""
    return random.Random(f"{version} {name}").randbytes(length)
