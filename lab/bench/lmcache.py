"""`lmcache bench l2`, run by run. It exits with 0 also when stores or loads failed, so its figures are looked at."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.bench.daemon import Daemon, Moment, between
from lab.bench.error import BenchError
from lab.harness.programs import environment

KEYS = 8
WARMUP = 1
QUIET = {"LMCACHE_TRACK_USAGE": "false", "DO_NOT_TRACK": "1", "LMCACHE_DISABLE_BANNER": "1"}
OPERATIONS = ("Store", "Lookup", "Load")


@dataclass(frozen=True)
class Workload:
    """Objects of size_kib, KEYS a submit, in_flight submits at once, for so many measured rounds."""

    size_kib: int
    in_flight: int
    rounds: int

    @property
    def keys(self) -> int:
        """Of one round."""
        return KEYS * self.in_flight

    @property
    def mib(self) -> float:
        """Of one round."""
        return self.keys * self.size_kib / 1024


class LMCache:
    """A process that has LMCache imported and forks for each run (lab.bench.lmcache_worker): importing takes longer
    than most runs. Each run is LMCache's own command with its own words, in a process of its own."""

    def __init__(self, stack: ExitStack, scratch: Path) -> None:
        self._report = scratch / "report.json"
        self._worker = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-m", "lab.bench.lmcache_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment() | QUIET,
            start_new_session=True,
        )
        stack.callback(self._end)

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._worker.pid, signal.SIGKILL)
        self._worker.communicate()

    def bench(self, spec: Mapping[str, Any], load: Workload, daemon: Daemon | None = None) -> dict[str, float]:
        """MiB/s of stores and loads; with a daemon also what each costs it. BenchError unless every
        key was stored, found, loaded and verified."""
        words: dict[str, object] = {
            "--l2-adapter": json.dumps(spec),
            "--num-keys": KEYS,
            "--in-flight": load.in_flight,
            "--data-size-kb": load.size_kib,
            "--rounds": load.rounds,
            "--warmup-rounds": WARMUP,
            "--l1-align-bytes": 4096,
            "--lookup-max-hit-rate": 1.0,
            "--format": "json",
            "--output": self._report,
        }
        command = ["bench", "l2", "--no-skip-verify", *(str(word) for pair in words.items() for word in pair)]
        said, moments = self._run(command, daemon)
        shown = "".join(said[-60:])
        if f"All {load.keys} keys data verified OK" not in "".join(said):
            raise BenchError(f"lmcache bench l2 with {spec} verified nothing:\n{shown}")
        metrics = json.loads(self._report.read_text())["metrics"]
        figures = {section["operation"]: section for name, section in metrics.items() if name.startswith("op_")}
        total = load.keys * load.rounds
        for operation in OPERATIONS:
            section = figures.get(operation, {})
            seen = tuple(section.get(name) for name in ("rounds", "rounds_timed_out", "total_keys", "total_success"))
            if seen != (load.rounds, 0, total, total):
                raise BenchError(f"lmcache bench l2 with {spec}: {operation} failed: {section}\n{shown}")
        seconds = {operation: figures[operation]["duration_avg_ms"] / 1000 for operation in ("Store", "Load")}
        found = {
            "store MiB/s": load.mib / seconds["Store"],
            "load MiB/s": load.mib / seconds["Load"],
        }
        if daemon is not None:
            objects = load.keys * (load.rounds + WARMUP)
            found |= between(moments["Store"], moments["Lookup"]).costs("store", objects)
            found |= between(moments["Load"], moments["end"]).costs("load", objects)
            found["daemon's peak MiB"] = daemon.peak_mib()
        return found

    def _run(self, command: list[str], daemon: Daemon | None) -> tuple[list[str], dict[str, Moment]]:
        """What it printed, and the daemon's accounts when each operation began and at the end."""
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        self._worker.stdin.write(json.dumps(command) + "\n")
        self._worker.stdin.flush()
        said: list[str] = []
        moments: dict[str, Moment] = {}
        for line in self._worker.stdout:
            said.append(line)
            if daemon is not None:
                begun = next((each for each in OPERATIONS if line.startswith(f"[{each}] Running")), None)
                if begun is not None:
                    moments[begun] = daemon.now()
                elif "[Verify]" in line:
                    moments.setdefault("end", daemon.now())
            if line.startswith("ended with "):
                if line.split()[2] != "0":
                    break
                return said, moments
        raise BenchError(f"lmcache {' '.join(command)} failed:\n{''.join(said[-60:])}")
