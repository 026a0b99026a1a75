"""The end of a mount: what was closed is kept, however late its notice, and what is still open is not."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

from harness.mounts import Mount
from mount.actors import Actor, eventually

_libc = ctypes.CDLL(None, use_errno=True)


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
