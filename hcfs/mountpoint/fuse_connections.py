"""Who serves a FUSE connection, without a word from the mount."""

from __future__ import annotations

import os
from pathlib import Path

_FUSE = "/dev/fuse"


def servers_of(connection: int) -> list[int]:
    """Processes with the connection open, as far as they may be looked into. None on kernels that don't tell which
    connection a descriptor of /dev/fuse has."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _serves(entry, connection)]


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal or a debugger: until it is continued, it answers nobody."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def _serves(process: str, connection: int) -> bool:
    try:
        descriptors = os.listdir(f"/proc/{process}/fd")
    except OSError:
        return False
    for descriptor in descriptors:
        try:
            if os.readlink(f"/proc/{process}/fd/{descriptor}") != _FUSE:
                continue
            lines = Path(f"/proc/{process}/fdinfo/{descriptor}").read_text().splitlines()
        except OSError:
            continue
        if any(line.split() == ["fuse_connection:", str(connection)] for line in lines):
            return True
    return False
