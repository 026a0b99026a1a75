"""A mount whose daemon has just died, while the kernel still knows its attributes."""

from __future__ import annotations

import os
from collections.abc import Callable

from hcfs.mountpoint.mountpoint import condition_of
from lab.harness.actors import store
from lab.harness.mounts import Mount


def test_a_daemon_that_has_just_died_is_told_from_one_that_lives(make_mount: Callable[..., Mount]) -> None:
    """The kernel goes on answering stat from its cache for a moment, which mustn't keep anybody from mounting again."""
    mount = make_mount()
    for number in range(3):
        store(mount.ns() / f"{number}", b"kept")
        os.fsync(fd := os.open(mount.dir, os.O_RDONLY))
        os.close(fd)
        assert condition_of(str(mount.dir)) == "alive"
        os.stat(mount.dir)
        mount.kill()
        assert condition_of(str(mount.dir)) == "dead"
        mount.mount()
        assert (mount.ns() / f"{number}").read_bytes() == b"kept"
