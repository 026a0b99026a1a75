"""Why a benchmark ends without a result."""

from __future__ import annotations


class BenchError(Exception):
    """What kept a benchmark from being made, in one sentence."""
