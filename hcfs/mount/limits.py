"""How many calls of a kind run at once, whichever front end brings them."""

from __future__ import annotations

READ_THREADS = WRITE_THREADS = 16
"""Reads, and writes, at once: enough to keep a drive busy with requests of 1 MiB. Each kind has its own, so that
writers that wait for room stop no reader."""

CONTROL_THREADS = 16
"""Flushes, fsyncs, verifications and truncations at once."""

ORIGIN_THREADS = 64
"""Lookups and opens that wait for an origin at once, for a listing or a whole object; they do nothing but wait."""

BACKGROUND = 256
"""Background requests at once for the whole mount. RELEASE is one: at the kernel's 12 it queues behind large reads, and
a file is absent for 0.3 s after its close."""

READ_AHEAD_KB = 4096
"""At the kernel's 128, page faults and buffered reads come as requests of 128 KiB instead of 1 MiB."""
