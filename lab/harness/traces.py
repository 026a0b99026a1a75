"""What a program and its children have made, looked for by a mark in the environment of all of them."""

from __future__ import annotations

import json
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path

from lab.harness import places, programs


class Traces:
    """Of one program that is started with `environment`, and all that comes of it."""

    def __init__(self, temporary: Path) -> None:
        """temporary: an empty directory, the program's for temporary files."""
        self.temporary = temporary
        self._mark = f"HCFS_TRACES={uuid.uuid4().hex}"
        self._places: set[Path] = set()

    @property
    def environment(self) -> dict[str, str]:
        name, _, value = self._mark.partition("=")
        return {**programs.environment(), name: value, "TMPDIR": str(self.temporary)}

    def look(self) -> set[Path]:
        """Places that its processes own now; they are remembered."""
        owners = {str(pid) for pid in self.processes()}
        for entry in places.register().iterdir():
            if entry.name.partition("-")[0] in owners:
                with suppress(OSError):
                    self._places.add(Path(json.loads(entry.read_text())["place"]))
        return self._places

    def processes(self) -> list[int]:
        """All that are alive: of a daemon, its guard, a server, a worker."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if self._mark.encode() in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    found.append(int(name))
        return found

    def left(self) -> list[str]:
        """What is there of it: processes, mounts, loop devices, directories and files, entries of the register."""
        found = [f"process {pid}" for pid in self.processes()]
        for place in {self.temporary, *self._places}:
            found += places.mounts_in(place) + places.loops_in(place)
        found += [str(place) for place in self._places if place.exists()]
        found += [str(path) for path in self.temporary.iterdir() if not path.name.startswith("pytest-of-")]
        for entry in places.register().iterdir():
            with suppress(OSError, ValueError):
                if Path(json.loads(entry.read_text())["place"]) in self._places:
                    found.append(str(entry))
        return found

    def must_go(self) -> None:
        """AssertionError with what is still there after a long time."""
        deadline = time.monotonic() + 60
        while left := self.left():
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
