"""What the torture tool looks at between rounds: the whole tree, and every byte of the space."""

from __future__ import annotations

import json
import os
import random
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.torture.calls import read_file
from lab.torture.journal import Tree
from lab.torture.objects import NotWhole

_PARTS = ("used_bytes", "free_bytes", "staged_bytes", "pending_bytes", "quarantined_bytes")
SETTLING = 60.0
"""Seconds for what follows a close by itself; the machine may be busy."""


class Finding(Exception):
    """Something that hcfs promises isn't so."""


@dataclass
class Found:
    """What is there."""

    tree: Tree
    files: int
    bytes: int
    blocks_bytes: int
    """Bytes that the files' blocks take, each object counted once."""


def look_at(directory: Path, chance: random.Random) -> Found:
    """Read everything below a namespace. Finding for a file that isn't whole or can't be read."""
    found = Found({}, 0, 0, 0)
    inodes: set[int] = set()
    for parent, directories, files in os.walk(directory, onerror=_unreadable):
        for name in (*directories, *files):
            path = Path(parent, name)
            status = os.lstat(path)
            key = os.fspath(path.relative_to(directory))
            if stat.S_ISDIR(status.st_mode):
                found.tree[key] = "d"
            elif stat.S_ISLNK(status.st_mode):
                found.tree[key] = f"l{os.readlink(path)}"
            else:
                found.tree[key] = _value(path, key, status.st_mode, chance)
                found.files += 1
                found.bytes += status.st_size
                if status.st_ino not in inodes:
                    inodes.add(status.st_ino)
                    found.blocks_bytes += status.st_blocks * 512
    return found


def _value(path: Path, key: str, mode: int, chance: random.Random) -> str:
    try:
        _, number = read_file(path, chance)
        tag = os.getxattr(path, "user.tag").decode() if "user.tag" in os.listxattr(path) else ""
    except NotWhole as error:
        raise Finding(f"{key} is not whole: {error}") from None
    except OSError as error:
        raise Finding(f"{key} can't be read: {error!r}") from None
    return f"f{number}:{stat.S_IMODE(mode):o}:{tag}"


def _unreadable(error: OSError) -> None:
    raise Finding(f"a directory can't be listed: {error!r}")


def compare(found: Tree, allowed: dict[str, set[str | None]]) -> None:
    """Finding where a path holds what it mustn't, or is there and nobody made it."""
    wrong = [
        f"{path} holds {found.get(path)}, allowed: {sorted(map(str, values))}"
        for path, values in allowed.items()
        if found.get(path) not in values
    ]
    wrong += [f"{path} holds {found[path]}, and nobody made it" for path in found if path not in allowed]
    if wrong:
        raise Finding(f"{len(wrong)} names are wrong: " + "; ".join(sorted(wrong)[:8]))


def status_of(directory: Path) -> dict[str, Any]:
    """status.json, whose parts must sum up to the capacity."""
    status: dict[str, Any] = json.loads((directory / ".hcfs" / "status.json").read_bytes())
    parts = {part: status[part] for part in _PARTS}
    if sum(parts.values()) != status["capacity_bytes"] or min(parts.values()) < 0:
        raise Finding(f"capacity is {status['capacity_bytes']}, its parts are {parts}")
    return status


def settled(directory: Path, condition: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    """The status once the condition holds; Finding when it doesn't come to that."""
    deadline = time.monotonic() + SETTLING
    while True:
        status = status_of(directory)
        if condition(status):
            return status
        if time.monotonic() > deadline:
            staged = (directory / ".hcfs" / "staged").read_text()
            raise Finding(f"not within {SETTLING:g} s: {what}; status: {status}; staged: {staged}")
        time.sleep(0.02)


def closed(directory: Path) -> bool:
    """Whether every version left is closed and waits for a rename that may never come."""
    lines = (directory / ".hcfs" / "staged").read_text().splitlines()
    return all(line.split("\t")[1] == "waiting" for line in lines)


def check_health(status: dict[str, Any], *, evicting: bool, state: str) -> None:
    """Nothing was harmed: no fault was injected here."""
    counters = status["counters"]
    if status["state"] != state:
        raise Finding(f"the store is {status['state']}: {status.get('state_reason')}")
    if status["quarantined_objects"] or counters["checksum_errors"] or counters["device_errors"]:
        raise Finding(f"an object was damaged by nobody: {status}")
    if counters["evictions"] and not evicting:
        raise Finding(f"{counters['evictions']} files were evicted from a store with room")
