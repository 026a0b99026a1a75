"""The end of a mount: what was closed is kept, however late its notice, and what is still open is not."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from lab.harness.actors import Actor, eventually, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.namespaces import own_mounts

_libc = ctypes.CDLL(None, use_errno=True)

# The daemon, with an end of its connection that comes by chance to busy ones: the read of /dev/fuse that was about to
# take a request, a RELEASE, is answered with ECONNABORTED, and the request is dropped.
ABORTED = """
import errno, os, sys
import pyfuse3
from hcfs.__main__ import main
from hcfs.filesystem.filesystem import Filesystem

served = pyfuse3.main

async def aborted(**options):
    await served(**options)
    error = OSError(errno.ECONNABORTED, "fuse_session_receive_buf failed with " + os.strerror(errno.ECONNABORTED))
    raise ExceptionGroup("Exceptions from Trio nursery", [error])

pyfuse3.main = aborted
Filesystem.release = lambda self, number: None
sys.exit(main())
"""


def test_a_file_closed_just_before_the_unmount(make_mount: Callable[..., Mount]) -> None:
    """The kernel drops the notice of the close with the connection, more often than not."""
    mount = make_mount()
    for number in range(6):
        path = mount.ns() / f"{number}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.write(fd, b"whole")
        daemon = mount.pid
        os.close(fd)
        assert _libc.umount2(os.fsencode(mount.dir), 0) == 0
        eventually(lambda pid=daemon: not os.path.exists(f"/proc/{pid}"), "the daemon has ended")
        mount.mount()
        assert path.read_bytes() == b"whole"


def test_a_file_that_is_open_when_the_daemon_is_told_to_end(make_mount: Callable[..., Mount]) -> None:
    """A duplicate was closed, which seals what is there so far; its writer goes on."""
    mount = make_mount()
    with Actor() as writer:
        fd = writer.open(mount.ns() / "part", os.O_WRONLY | os.O_CREAT)
        writer.write(fd, b"part")
        writer.close(writer.dup(fd))
        mount.kill(signal.SIGTERM)
    mount.mount()
    assert os.listdir(mount.ns()) == []


def test_an_unmount_that_meets_the_daemon_reading_a_request(
    tmp_path: Path, make_image: Callable[..., Path], make_mount: Callable[..., Mount]
) -> None:
    """ECONNABORTED ends the connection as ENODEV does: what was closed is kept, and nothing is amiss."""
    image, directory, log = make_image(), tmp_path / "mnt", tmp_path / "log"
    directory.mkdir()
    hcfs("mkfs", image)
    daemon = subprocess.Popen([sys.executable, "-c", ABORTED, "mount", image, directory, "-f", "--log", log])
    try:
        eventually(lambda: (directory / ".hcfs").exists(), "it serves")
        (directory / "kv").mkdir()
        fd = os.open(directory / "kv" / "closed", os.O_WRONLY | os.O_CREAT)
        os.write(fd, b"whole")
        os.close(fd)
        assert _libc.umount2(os.fsencode(directory), 0) == 0
        status = daemon.wait(60)
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()
            subprocess.run(["umount", "-l", directory], check=False)
    kv = make_mount(image).ns()
    assert {name: (kv / name).read_bytes() for name in os.listdir(kv)} == {"closed": b"whole"}
    assert status == 0
    assert "ERROR" not in log.read_text()


def test_another_mount_has_a_file_of_the_same_number_open(make_mount: Callable[..., Mount]) -> None:
    """It says nothing about this one's."""
    mount, other = make_mount(), make_mount()
    for each in (mount, other):
        each.ns()
    with Actor() as holder:
        held = holder.open(other.ns() / "x", os.O_WRONLY | os.O_CREAT)
        number = holder.fstat(held).st_ino
        fd = os.open(mount.ns() / "x", os.O_WRONLY | os.O_CREAT)
        os.write(fd, b"whole")
        assert os.fstat(fd).st_ino == number
        daemon = mount.pid
        os.close(fd)
        assert _libc.umount2(os.fsencode(mount.dir), 0) == 0
        eventually(lambda: not os.path.exists(f"/proc/{daemon}"), "the daemon has ended")
        mount.mount()
        assert (mount.ns() / "x").read_bytes() == b"whole"


def test_another_mount_namespace_still_has_the_mount(make_mount: Callable[..., Mount]) -> None:
    """As containers and services have that were started meanwhile: the command says who, instead of waiting for
    minutes."""
    mount = make_mount()
    put(mount.ns() / "x", b"x")
    command = own_mounts("exec sleep 300", keep=mount.dir)
    holder = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        eventually(
            lambda: os.readlink(f"/proc/{holder.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"),
            "it has its namespace",
        )
        daemon = mount.pid
        result = hcfs("umount", mount.dir, check=False)
        assert result.returncode == 1
        assert f"the mount namespace of process {holder.pid} (sleep 300) still has it" in result.stderr
        assert f"nsenter -t {holder.pid} -m umount {mount.dir}" in result.stderr
        subprocess.run(["nsenter", "-t", str(holder.pid), "-m", "umount", mount.dir], check=True)
        eventually(lambda: not os.path.exists(f"/proc/{daemon}"), "the daemon has ended")
    finally:
        holder.kill()
        holder.wait()
    mount.mount()
    assert (mount.ns() / "x").read_bytes() == b"x"


def test_whoever_watches_the_status_keeps_no_mount(make_mount: Callable[..., Mount]) -> None:
    """Open for a moment, again and again, it made an unmount in four fail."""
    mount = make_mount(size="64M")
    for _ in range(4):
        watcher = subprocess.Popen(
            ["sh", "-c", 'while cat "$0" >/dev/null 2>&1; do :; done', mount.dir / ".hcfs" / "status.json"]
        )
        try:
            mount.umount()
        finally:
            watcher.kill()
            watcher.wait()
        mount.mount()
