"""A device that stops answering: what needs no I/O is still served."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.cli import hcfs
from harness.images import create_image
from harness.mounts import Mount
from mount.actors import Actor, errno_of, load, pattern, put

WRITERS = 130
"""More than the 99 handlers that pyfuse3 runs by default."""


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
    """130 writers wait for the device; names, attributes, listings, creation, cached reads and the status don't."""
    image = create_image(freezer / "image.img", "300M")
    hcfs("mkfs", image)
    mount = make_mount(image, options="commit_interval=0.1", allow_warnings=("slow", "stall", "waiting", "took"))
    kv = mount.ns()
    (kv / "writers").mkdir()
    put(kv / "x", pattern("x", 100_000))
    assert load(kv / "x") == pattern("x", 100_000)
    contents = [pattern(number, 300_000) for number in range(WRITERS)]
    failures: list[str] = []

    def write(number: int) -> None:
        try:
            (kv / "writers" / f"{number}.tmp").write_bytes(contents[number])
        except OSError as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    with Actor() as other:
        # A process started while writers wait would inherit their descriptors and wait as well, to flush them: the one
        # that thaws is there before, and doesn't wait for ever to be told.
        thaw = subprocess.Popen(["bash", "-c", 'read -t 60; fsfreeze -u "$0"', freezer], stdin=subprocess.PIPE)
        subprocess.run(["fsfreeze", "-f", freezer], check=True)
        try:
            for thread in threads:
                thread.start()
            answered = threading.Event()
            thread = threading.Thread(target=lambda: (served(other, kv, mount), answered.set()))
            thread.start()
            assert answered.wait(30), "calls that need no device wait for it"
        finally:
            thaw.communicate(b"\n", timeout=60)
        thread.join(60)
        for thread in threads:
            thread.join(60)
    assert failures == []
    for number in range(WRITERS):
        os.rename(kv / "writers" / f"{number}.tmp", kv / "writers" / f"{number}")
        assert load(kv / "writers" / f"{number}") == contents[number]


def served(other: Actor, kv: Path, mount: Mount) -> None:
    """Calls that are answered from memory, by another process, in the directory of the waiting writers too."""
    for _ in range(20):
        assert other.listdir(kv / "writers") == []
        assert errno_of(other.stat, kv / "writers" / "absent") == "ENOENT"
        assert other.stat(kv / "x").st_size == 100_000
        assert other.load(kv / "x") == pattern("x", 100_000)
        other.mkdir(kv / "d")
        other.rename(kv / "d", kv / "e")
        other.rmdir(kv / "e")
        other.close(other.open(kv / "writers" / "empty", os.O_WRONLY | os.O_CREAT))
        other.unlink(kv / "writers" / "empty")
        assert other.statvfs(kv).f_bsize == 4096
    assert mount.status()["state"] == "ok"
    assert hcfs("status", mount.dir, "--json").returncode == 0
