"""A device that stops answering: what needs no I/O is still served."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.harness.actors import Actor, errno_of, eventually, load, pattern, put
from lab.harness.cli import hcfs
from lab.harness.images import create_image
from lab.harness.mounts import Mount

WRITERS = 130
"""More than the 99 handlers that pyfuse3 runs by default."""
SIZE = 300_000
CONTENT = pattern("cached", 100_000)


@pytest.fixture
def freezer(tmp_path: Path, make_loop: Callable[..., Path]) -> Iterator[Path]:
    """An ext4 whose writes `fsfreeze` can hold up, for an image to lie on."""
    device, directory = make_loop("512M"), tmp_path / "ext4"
    directory.mkdir()
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    subprocess.run(["mount", device, directory], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["fsfreeze", "-u", directory], check=False, capture_output=True)
        subprocess.run(["umount", directory], check=True)


def test_the_mount_stands_still_for_writers_only(freezer: Path, make_mount: Callable[..., Mount]) -> None:
    """130 writers wait for the device; names, attributes, listings, creation, cached reads and the status don't.

    The writers are threads of another process: the one that thaws the device must hold no file of the mount, because a
    program that it starts closes the inherited handles, and each close waits for the device.
    """
    image = create_image(freezer / "image.img", "300M")
    hcfs("mkfs", image)
    mount = make_mount(image, options="commit_interval=0.1", allow_warnings=("slow", "stall", "waiting", "took"))
    kv = mount.ns()
    (kv / "writers").mkdir()
    put(kv / "x", CONTENT)
    assert load(kv / "x") == CONTENT
    paths = [os.fspath(kv / "writers" / f"{number}.tmp") for number in range(WRITERS)]
    problems: list[BaseException] = []
    with Actor() as writers, Actor() as other:
        subprocess.run(["fsfreeze", "-f", freezer], check=True)
        try:
            writers.begin("threads_write", paths, SIZE)
            thread = threading.Thread(target=served, args=(other, kv, mount, problems), daemon=True)
            thread.start()
            thread.join(30)
            waits = thread.is_alive()
        finally:
            subprocess.run(["fsfreeze", "-u", freezer], check=True)
        thread.join(60)
        assert not waits, "a call that needs no device waits for it"
        assert problems == []
        writers.result()
        assert writers.leave() == 0
    for number, path in enumerate(paths):
        os.rename(path, path.removesuffix(".tmp"))
        assert load(path.removesuffix(".tmp")) == bytes([number % 256]) * SIZE


def served(other: Actor, kv: Path, mount: Mount, problems: list[BaseException]) -> None:
    """Calls that are answered from memory, by another process, in the directory of the waiting writers too."""
    try:
        eventually(lambda: mount.status()["staged_objects"] == WRITERS, "every writer has its version")
        for _ in range(20):
            assert other.listdir(kv / "writers") == []
            assert errno_of(other.stat, kv / "writers" / "absent") == "ENOENT"
            assert other.stat(kv / "x").st_size == len(CONTENT)
            assert other.load(kv / "x") == CONTENT
            other.mkdir(kv / "d")
            other.rename(kv / "d", kv / "e")
            other.rmdir(kv / "e")
            other.close(other.open(kv / "writers" / "empty", os.O_WRONLY | os.O_CREAT))
            other.unlink(kv / "writers" / "empty")
            assert other.statvfs(kv).f_bsize == 4096
        assert mount.status()["state"] == "ok"
        assert hcfs("status", mount.dir, "--json").returncode == 0
    except BaseException as error:
        problems.append(error)


def test_the_commands_when_the_daemon_is_stopped(make_mount: Callable[..., Mount]) -> None:
    """SIGSTOP: `hcfs status` gives up in 5 seconds, with a sentence, instead of hanging as any ls does."""
    mount = make_mount(size="64M")
    pid = mount.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        done = hcfs("status", mount.dir, check=False)
        taken = time.monotonic() - begun
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done.returncode == 1
    assert str(mount.dir) in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    # 5 seconds for the answer; the rest is the command's own start.
    assert taken < 8
    assert mount.status()["state"] == "ok"
