"""Processes killed within open(2), on a real kernel: it gives the handle back without the FLUSH of a close."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from lab.harness.actors import eventually


def test_writers_killed_at_any_moment_leave_no_empty_files(kv: Path) -> None:
    """Each loop of the writers makes a file of three bytes: any other size is a publishing that nobody asked for."""
    chance = random.Random("killed opens")
    for number in range(40):
        child = os.fork()
        if child == 0:
            try:
                for serial in range(1000):
                    fd = os.open(kv / f"{number}-{serial}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                    os.write(fd, b"abc")
                    os.close(fd)
            finally:
                os._exit(0)
        time.sleep(chance.uniform(0.005, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    time.sleep(0.1)
    eventually(lambda: {os.stat(kv / name).st_size for name in os.listdir(kv)} <= {3}, "only whole files", timeout=3)
