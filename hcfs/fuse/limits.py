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

BACKGROUND_STREAMING = 4096
"""The same while files are read that are still being fetched. READs of pages wait for their bytes then, one for each
thread that reads, and are background requests: at 256 of them the kernel takes none of any other file."""

AHEAD_WAITING = 512
"""READs of the kernel's read-ahead that may wait for bytes of a fetch at once. One beyond is refused, and the kernel
asks for the page alone that somebody needs."""

READ_AHEAD_KB = 4096
"""At the kernel's 128, page faults and buffered reads come as requests of 128 KiB instead of 1 MiB."""
