"""SIGKILL of the daemon and of writers at random moments: whole objects, the promised ones, and no space lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from system import churn

from lab.harness.actors import eventually
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

ROUNDS = int(os.environ.get("HCFS_KILL_ROUNDS", "25"))
SEED = os.environ.get("HCFS_KILL_SEED", "1")
WRITERS = 3

Allowed = dict[str, set[int | None]]


def start(kv: Path, journal: Path, writer: int, seed: str) -> subprocess.Popen[str]:
    """A writer on its way."""
    script = [sys.executable, "-S", "-E", churn.__file__, kv, journal, str(writer), seed]
    return subprocess.Popen(script, stderr=subprocess.PIPE, text=True)


def allowed(journal: Path, before: Allowed, durable_at: str) -> Allowed:
    """What each name of the journal's writer may hold now.

    What it held at its last moment of the kind `durable_at` ("synced" where the daemon died, "done" where only writers
    did), or what any operation begun after that would make it hold.
    """
    now = {name: set(numbers) for name, numbers in before.items()}
    since: list[dict[str, int | None]] = []
    for line in journal.read_text().splitlines() if journal.exists() else []:
        kind, *rest = json.loads(line)
        if kind == "begin":
            since.append(rest[0])
        elif kind == "synced" or kind == durable_at:
            for outcome in since:
                now.update({name: {number} for name, number in outcome.items()})
            since.clear()
    for outcome in since:
        for name, number in outcome.items():
            now.setdefault(name, {None}).add(number)
    return now


def held(kv: Path) -> dict[str, int]:
    """Every committed object by name; each must be whole."""
    found = {}
    for parent, _, files in os.walk(kv):
        for file in files:
            path = Path(parent, file)
            found[os.fspath(path.relative_to(kv))] = churn.identify(path.read_bytes())[1]
    return found


def settled(mount: Mount) -> dict[str, Any]:
    """The status when nothing is staged any more; its parts sum up to the capacity, then and on the way."""

    def nothing_staged() -> dict[str, Any] | None:
        status = mount.status()
        parts = ("used_bytes", "free_bytes", "staged_bytes", "pending_bytes", "quarantined_bytes")
        assert sum(status[part] for part in parts) == status["capacity_bytes"]
        return status if status["staged_objects"] == status["staged_bytes"] == 0 else None

    status: dict[str, Any] = eventually(nothing_staged, "nothing is staged")
    assert status["state"] == "ok"
    assert status["quarantined_objects"] == status["counters"]["evictions"] == 0
    assert status["counters"]["checksum_errors"] == status["counters"]["device_errors"] == 0
    return status


@pytest.mark.timeout(900)
def test_kill_rounds(make_mount: Callable[..., Mount], tmp_path: Path) -> None:
    """Rounds on one image: each ends with the daemon, all writers or one of them killed, and everything looked at."""
    chance = random.Random(f"kill rounds {SEED}")
    mount = make_mount(size="256M", options="commit_interval=0.05,staging_ttl=1")
    kv = mount.ns()
    os.fsync(fd := os.open(kv, os.O_RDONLY))
    os.close(fd)
    free = settled(mount)["free_bytes"]
    expected: Allowed = {}
    killed = 0
    for number in range(ROUNDS):
        victim = chance.choice(["daemon", "daemon", "writers", "one writer", "daemon and writers"])
        journals = [tmp_path / f"journal-{number}-{writer}" for writer in range(WRITERS)]
        writers = [start(kv, journals[index], index, f"{SEED} {number} {index}") for index in range(WRITERS)]
        time.sleep(chance.uniform(0.05, 0.8))
        if victim == "one writer":
            writers[0].kill()
            assert writers[0].wait(30) == -signal.SIGKILL
            time.sleep(chance.uniform(0, 0.2))
        if "writers" in victim and victim != "daemon and writers":
            chance.shuffle(writers)
        if "daemon" in victim:
            mount.kill()
            killed += 1
        for writer in writers:
            if victim != "daemon":
                writer.kill()
            _, said = writer.communicate(timeout=60)
            assert said == "", f"seed {SEED}, round {number}: {said}"
            assert writer.returncode in (3, -signal.SIGKILL)
        if "daemon" in victim:
            mount.mount()
        settled(mount)
        found = held(kv)
        durable_at = "synced" if "daemon" in victim else "done"
        for journal in journals:
            expected = allowed(journal, expected, durable_at)
        wrong = {
            name: (found.get(name), numbers) for name, numbers in expected.items() if found.get(name) not in numbers
        }
        assert not wrong, f"seed {SEED}, round {number}, killed {victim}: {wrong}"
        assert found.keys() <= expected.keys()
        os.fsync(fd := os.open(kv, os.O_RDONLY))
        os.close(fd)
        expected = {name: {found.get(name)} for name in expected}
    assert killed > ROUNDS // 4
    mount.umount()
    hcfs("fsck", mount.source, "--data", timeout=120)
    mount.mount()
    for name in held(kv):
        (kv / name).unlink()
    os.fsync(fd := os.open(kv, os.O_RDONLY))
    os.close(fd)
    eventually(lambda: settled(mount)["pending_bytes"] == 0, "nothing pending")
    assert settled(mount)["free_bytes"] == free
