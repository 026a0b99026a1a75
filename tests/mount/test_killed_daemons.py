"""SIGKILL of daemons that are telling the kernel about evicted names: they go, and their clients hear of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hcfs.mountpoint.client import connection_of
from hcfs.mountpoint.guard import abort, identity
from lab.harness.actors import eventually
from lab.harness.mounts import Mount

KILLS = 12
STORE = """
import os, sys
directory, own = sys.argv[1:]
os.chdir(directory)
number = 0
try:
    while True:
        number += 1
        path = f"{own}-{number}"
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


SILENT = """
import os, sys, threading
from hcfs.fuse.connection import Connection
from hcfs.fuse.handshake import shake_hands_with_kernel
from hcfs.fuse.notices import Notices
from hcfs.mountpoint.guard import guard_child
from hcfs.mountpoint.tuning import tune_mount
daemon = os.fork()
if daemon:
    guard_child(sys.argv[1], daemon)
    os._exit(0)
notices = Notices()
notices.connection = connection = Connection.mount(sys.argv[1], {"fsname=silent", "subtype=hcfs"})
shake_hands_with_kernel(connection, max_background=64, max_readahead=1 << 20)
tune_mount(sys.argv[1])
print(os.getpid(), flush=True)
while connection.receive(bytearray(4096), memoryview(bytearray(1 << 21))):
    threading.Thread(target=notices.invalidate_entry, args=(1, b"name")).start()
    print("asked", flush=True)
"""


@pytest.mark.parametrize("detached", [False, True], ids=["mounted", "detached"])
def test_a_connection_is_ended_whose_dead_daemon_is_stuck(tmp_path: Path, detached: bool) -> None:
    """A notice waits for the directory that a client's lookup holds, and that waits for the daemon. detached: nothing
    leads to the mount any more by then, as after `hcfs umount --lazy` or in the midst of an end by SIGTERM."""
    mounted = tmp_path.resolve() / "mounted"
    mounted.mkdir()
    with subprocess.Popen([sys.executable, "-c", SILENT, mounted], stdout=subprocess.PIPE, text=True) as guard:
        connection = known = None
        try:
            assert guard.stdout is not None
            daemon = int(guard.stdout.readline())
            connection = connection_of(str(mounted))
            known = None if connection is None else identity(connection)
            client = subprocess.Popen([sys.executable, "-c", LOOKS, mounted], stdout=subprocess.PIPE, text=True)
            assert guard.stdout.readline() == "asked\n"
            wchan = Path(f"/proc/{daemon}/task")
            eventually(lambda: any(_is_stuck(task) for task in wchan.iterdir()), "the notice waits")
            # The guard has looked by now: it does so each half a second.
            time.sleep(1)
            if detached:
                subprocess.run(["umount", "-l", mounted], check=True)
            os.kill(daemon, signal.SIGKILL)
            assert client.communicate(timeout=60)[0] == "ECONNABORTED\n"
            assert guard.wait(60) == 0
        finally:
            guard.kill()
            subprocess.run(["umount", "-l", mounted], check=False, capture_output=True)
            if connection is not None and identity(connection) == known:
                abort(connection)


LOOKS = """
import errno, os, sys
try:
    os.stat(sys.argv[1] + "/name")
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def _is_stuck(task: Path) -> bool:
    return "fuse_reverse_inval_entry" in (task / "stack").read_text()
