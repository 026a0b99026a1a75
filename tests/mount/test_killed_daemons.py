"""SIGKILL of daemons that are telling the kernel about evicted names: they go, and their clients hear of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from harness.mounts import Mount

KILLS = 12
STORE = """
import os, sys, time
directory, own = sys.argv[1:]
number = 0
try:
    while True:
        number += 1
        path = f"{directory}/{own}-{number}"
        fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT)
        os.write(fd, bytes(150_000))
        os.close(fd)
        os.rename(path + ".tmp", path)
except OSError:
    sys.exit(3)
"""


def test_no_daemon_stays_and_no_client_hangs(make_mount: Callable[..., Mount]) -> None:
    """A notice waits for its directory, whose holder may wait for the daemon: each would wait for the other for ever.

    All clients work in one directory, and everything that they store pushes out something there.
    """
    words = "lookup_grace=0,low_watermark=0.3,high_watermark=0.35,commit_interval=0.05"
    mount = make_mount(size="48M", options=words, allow_warnings=["full", "evict", "abandon"])
    for _ in range(KILLS):
        kv = mount.ns()
        command = [sys.executable, "-S", "-E", "-c", STORE, str(kv)]
        clients = [subprocess.Popen([*command, str(own)], stderr=subprocess.DEVNULL) for own in range(4)]
        try:
            before = mount.status()["counters"]["evictions"]
            for _ in range(200):
                if mount.status()["counters"]["evictions"] > before + 20:
                    break
            mount.kill()
            assert [client.wait(20) for client in clients] == [3] * 4
        finally:
            for client in clients:
                client.kill()
        mount.mount()
