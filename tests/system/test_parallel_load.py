"""16 threads and 4 processes at once on one mount that is too small for them: every read is checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from system import load_worker

from lab.harness.actors import eventually
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

SECONDS = float(os.environ.get("HCFS_LOAD_SECONDS", "60"))
SEED = os.environ.get("HCFS_LOAD_SEED", "1")
THREADS, PROCESSES = 16, 4


@pytest.mark.timeout(SECONDS + 300)
def test_parallel_load(make_mount: Callable[..., Mount]) -> None:
    """Stores, loads, removal and listing for a minute: absent or whole, never older than before, no other error.

    The threads are one process to the filesystem, and share nothing but that.
    """
    mount = make_mount(size="48M", options="lookup_grace=0,commit_interval=0.2")
    kv = mount.ns()
    (kv / "d0").mkdir()
    (kv / "d1").mkdir()
    everybody = THREADS + PROCESSES
    command = [sys.executable, "-S", "-E", load_worker.__file__, kv]
    processes = [
        subprocess.Popen(
            [*command, str(worker), str(everybody), SEED, str(SECONDS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for worker in range(THREADS, everybody)
    ]
    with ThreadPoolExecutor(THREADS) as pool:
        workers = [load_worker.Worker(kv, worker, everybody, SEED, 0) for worker in range(THREADS)]
        running = [pool.submit(worker.run, SECONDS) for worker in workers]
        problems = [error for future in running if (error := future.exception()) is not None]
    counts = [future.result() for future in running] if not problems else []
    for process in processes:
        said, failed = process.communicate(timeout=120)
        if process.returncode:
            problems.append(AssertionError(failed.strip().splitlines()[-1]))
        else:
            counts.append(json.loads(said))
    assert problems == [], f"seed {SEED}"
    totals = {name: sum(count[name] for count in counts) for name in counts[0]}
    assert min(count["stores"] for count in counts) > 0
    assert min(count["hits"] for count in counts) > 0
    assert totals["misses"] > 0
    status = eventually(lambda: (now := mount.status())["staged_objects"] == 0 and now, "nothing staged")
    parts = ("used_bytes", "free_bytes", "staged_bytes", "pending_bytes", "quarantined_bytes")
    assert sum(status[part] for part in parts) == status["capacity_bytes"]
    assert status["state"] == "ok"
    assert status["counters"]["checksum_errors"] == status["counters"]["device_errors"] == 0
    assert status["counters"]["evictions"] > 0
    assert status["counters"]["abandoned"] == 0
    mount.umount()
    hcfs("fsck", mount.source, "--data", timeout=120)
