"""What a daemon of hcfs spends: CPU time, memory, the kernel's requests, bytes copied."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIB = 1 << 20
DATA = ("READ", "WRITE")


@dataclass(frozen=True)
class Moment:
    """A daemon's accounts at one moment; only differences mean anything."""

    cpu_s: float
    counters: Mapping[str, int]
    requests: Mapping[str, int]


@dataclass(frozen=True)
class Spent:
    """Between two moments. `read` and `written` are bytes."""

    cpu_s: float
    read: int
    written: int
    copied: int
    requests: Mapping[str, int]

    def costs(self, prefix: str, objects: int) -> dict[str, float]:
        """Costs of moving so many large objects, by name with unit. Counters that the daemon lacks are left out; so is
        all of it where nothing came to the daemon, as when the kernel had it in its cache."""
        moved = (self.read + self.written) / MIB
        if not moved:
            return {}
        found = {f"{prefix} CPU ms/MiB": self.cpu_s * 1000 / moved}
        if self.requests:
            found[f"{prefix} READ+WRITE/MiB"] = self._data / moved
            found[f"{prefix} other requests/object"] = self._other / objects
        if self.copied >= 0:
            found[f"{prefix} copied MiB/MiB"] = self.copied / MIB / moved
        return found

    def costs_per_object(self, prefix: str, objects: int) -> dict[str, float]:
        """The same of small objects, whose number costs and not their length."""
        found = {f"{prefix} CPU us/object": self.cpu_s * 1e6 / objects}
        if self.requests:
            found[f"{prefix} READ+WRITE/object"] = self._data / objects
            found[f"{prefix} other requests/object"] = self._other / objects
        return found

    @property
    def _data(self) -> int:
        return sum(self.requests.get(opcode, 0) for opcode in DATA)

    @property
    def _other(self) -> int:
        return sum(self.requests.values()) - self._data


class Daemon:
    """The process that serves a mount. Reading its accounts costs it a few requests, which are in the next difference:
    nothing beside the workloads that are measured here."""

    def __init__(self, directory: Path) -> None:
        """directory: where it is mounted."""
        self._status = directory / ".hcfs/status.json"
        self.pid: int = self.status()["pid"]

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._status.read_bytes())
        return found

    def now(self) -> Moment:
        status = self.status()
        return Moment(self.cpu_seconds(), status["counters"], status.get("requests", {}))

    def cpu_seconds(self) -> float:
        """User and system time of all its threads, those that have ended included. The clock of another process has
        nanoseconds where /proc/PID/stat has ticks of 10 ms."""
        return time.clock_gettime(~self.pid << 3 | 2)

    def peak_mib(self) -> float:
        """Most memory that was ever resident."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        raise ValueError(f"process {self.pid} has no VmHWM")


def between(before: Moment, after: Moment) -> Spent:
    grown = {name: value - before.counters.get(name, 0) for name, value in after.counters.items()}
    requests = {name: value - before.requests.get(name, 0) for name, value in after.requests.items()}
    return Spent(
        after.cpu_s - before.cpu_s,
        grown["read_bytes"],
        grown["written_bytes"],
        grown.get("copied_bytes", -1),
        {name: value for name, value in requests.items() if value},
    )
