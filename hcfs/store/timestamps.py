"""The clock of files' times."""

from __future__ import annotations

import time

_REALTIME_COARSE = 5
"""CLOCK_REALTIME_COARSE of linux/time.h, which Python doesn't name."""


def now_ns() -> int:
    """Now, in ns since 1970, as the kernel stamps files: up to a tick (1 to 10 ms) behind. Where a call lets the kernel
    choose the time (`touch`, utimensat with UTIME_NOW) it sends this clock's; with a finer one of ours a file that is
    touched right after it was written would become older."""
    return time.clock_gettime_ns(_REALTIME_COARSE)
