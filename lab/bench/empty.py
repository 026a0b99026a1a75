"""A pyfuse3 filesystem in which nothing is there: what pyfuse3 and trio cost when a handler does nothing.

Mounts at the directory that it is given, and ends when it is unmounted."""

from __future__ import annotations

import stat
import sys
from typing import Any

import pyfuse3
import trio

TIMEOUT_S = 30.0
"""for which the kernel may remember that a name is absent, as on hcfs"""


class Empty(pyfuse3.Operations):
    async def getattr(self, inode: int, *_: Any) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        entry.st_ino, entry.st_mode, entry.st_nlink = inode, stat.S_IFDIR | 0o755, 2
        entry.entry_timeout = entry.attr_timeout = TIMEOUT_S
        return entry

    async def lookup(self, *_: Any) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        entry.st_ino, entry.entry_timeout = 0, TIMEOUT_S
        return entry


if __name__ == "__main__":
    pyfuse3.init(Empty(), sys.argv[1], {"default_permissions", "fsname=empty"})
    try:
        trio.run(pyfuse3.main)
    finally:
        pyfuse3.close(unmount=True)
