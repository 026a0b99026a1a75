"""Image files and loop devices."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from lab.harness.places import Place

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(size: str | int) -> int:
    """Bytes of `256M`, `4096` and the like (powers of 1024)."""
    if isinstance(size, int):
        return size
    digits = size.rstrip("KMGT")
    return int(digits) * _UNITS[size[len(digits) :]]


def create_image(path: Path, size: str | int) -> Path:
    """A sparse file of `size` bytes at `path`, all zeros."""
    with path.open("xb") as image:
        image.truncate(parse_size(size))
    return path


@cache
def in_memory(_: int) -> Place:
    """Where a process (its number) has its files that are to be in memory: taken down when it ends."""
    return Place.make("hcfs-test-", Path("/dev/shm"))


class LoopDevice:
    """A loop device over a new file; `backing="memory"` puts the file under /dev/shm."""

    def __init__(self, directory: Path, size: str | int, sector: int = 512, backing: str = "memory") -> None:
        parent = directory if backing == "disk" else in_memory(os.getpid()).path
        handle, name = tempfile.mkstemp(prefix="hcfs-test-loop-", suffix=".img", dir=parent)
        os.ftruncate(handle, parse_size(size))
        os.close(handle)
        self.backing = Path(name)
        command = ["losetup", "--direct-io=on", f"--sector-size={sector}", "-f", "--show", name]
        try:
            self.path = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
        except BaseException:
            self.backing.unlink()
            raise

    def detach(self) -> None:
        """Give the device back and remove its file; a device still in use fails here and not silently later."""
        subprocess.run(["losetup", "-d", str(self.path)], check=True, capture_output=True)
        self.backing.unlink()
        # losetup -d of a device in use succeeds and waits for its last user: one that stays is a leak of the test. One
        # that goes may be another test's, which looks at all devices for a UUID.
        deadline = time.monotonic() + 10
        while self._attached():
            assert time.monotonic() < deadline, f"{self.path} is still held after the test"
            time.sleep(0.05)

    def _attached(self) -> bool:
        command = ["losetup", "-n", "-O", "BACK-FILE", str(self.path)]
        return str(self.backing) in subprocess.run(command, check=False, capture_output=True, text=True).stdout
