"""Processes that have a file open or locked, by /proc."""

from __future__ import annotations

import os
from collections.abc import Sequence

from hcfs.device.identity import Identity, identify_open_file

NAMED = 3
COMMAND_LENGTH = 80


def openers(target: Identity) -> list[int]:
    """Processes with a descriptor of this block device or file, as far as we may see them."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _has_open(entry, target)]


def writers(target: Identity) -> list[int]:
    """Processes with a descriptor of this file that is open for writing, as far as we may see them; without those that
    we were started by, which know what they do."""
    return [pid for pid in openers(target) if pid not in _ancestry() and _writes(pid, target)]


def lock_owners(file: Identity) -> list[int]:
    """Processes that took a lock on this file, by /proc/locks; they may have ended and left it to a child."""
    place = f"{os.major(file.device):02x}:{os.minor(file.device):02x}:{file.inode}"
    try:
        with open("/proc/locks") as locks:
            fields = [line.split() for line in locks]
    except OSError:
        return []
    # "1: FLOCK ADVISORY WRITE 812 fe:00:1234 0 EOF"; a waiter's line has "->" as its second word, an open file
    # description's lock has -1 for the process.
    return [int(words[4]) for words in fields if words[1] != "->" and words[5] == place and int(words[4]) > 0]


def name_processes(pids: Sequence[int]) -> str:
    """`process 12 (python -m hcfs ...), process 13 (...) and 2 more`; nothing for none."""
    names = [f"process {pid}{_command(pid)}" for pid in pids[:NAMED]]
    more = len(pids) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _has_open(process: str, target: Identity) -> bool:
    directory = f"/proc/{process}/fd"
    try:
        descriptors = os.listdir(directory)
    except OSError:
        return False
    return any(identify_open_file(f"{directory}/{descriptor}") == target for descriptor in descriptors)


def _writes(pid: int, target: Identity) -> bool:
    try:
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            if identify_open_file(f"/proc/{pid}/fd/{descriptor}") == target:
                with open(f"/proc/{pid}/fdinfo/{descriptor}") as told:
                    flags = next((line.split()[1] for line in told if line.startswith("flags:")), "0")
                if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                    return True
    except OSError:  # it has ended, or closed that
        pass
    return False


def _ancestry() -> set[int]:
    pid, found = os.getpid(), set[int]()
    while pid and pid not in found:
        found.add(pid)
        try:
            with open(f"/proc/{pid}/stat", "rb") as told:
                pid = int(told.read().rpartition(b")")[2].split()[1])
        except OSError:
            break
    return found


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as arguments:
            words = arguments.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
    command = " ".join(words.split())[:COMMAND_LENGTH]  # an argument may be a whole program, with line breaks
    return f" ({command})" if command else ""
