"""Whether there is memory for what metadata asks for."""

from __future__ import annotations

import re
from pathlib import Path

from hcfs.store.errors import TooLittleMemory

MEMINFO = "/proc/meminfo"

SHARE = 4
"""One part in so many of what is available may be taken at the word of a few bytes on a device."""


def require_memory(nbytes: int) -> None:
    """TooLittleMemory when an index of mostly empty slots would take more than its share of what the machine has
    left."""
    try:
        found = re.search(r"^MemAvailable:\s+([0-9]+) kB", Path(MEMINFO).read_text(), re.MULTILINE)
    except OSError:
        return
    if found is not None and nbytes > (int(found[1]) << 10) // SHARE:
        raise TooLittleMemory(
            f"the store's index needs {nbytes >> 20} MiB of memory for slots of which most are empty, and the "
            f"machine has {int(found[1]) >> 10} MiB available: read it on a machine with {SHARE} times what it needs"
        )
