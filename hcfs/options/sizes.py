"""Sizes as people write them."""

from __future__ import annotations

import re

_SIZE = re.compile(r"([0-9]{1,18})([KMGT]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(text: str) -> int | None:
    """Bytes of `4096`, `64K`, `256M`, `1G`, `2T` (powers of 1024); None for anything else."""
    match = _SIZE.fullmatch(text.upper())
    return int(match[1]) * _UNITS[match[2]] if match else None
