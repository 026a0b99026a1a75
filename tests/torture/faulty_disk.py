"""A disk that fails on command: a filesystem of one file, on which the kernel makes a loop device.

Run as a script: faulty_disk.py BACKING DIRECTORY RULES. Requests to `DIRECTORY/disk` go to the file BACKING; those that
a rule of the JSON file RULES matches fail. A rule: {"operation": "read" | "write" | "flush", "errno": number,
"start": first byte, "end": byte after the last, "times": how often}; the last three may be left out. Without "errno"
the request is held until there are other rules, and then done.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pyfuse3
import trio

from lab.harness import programs
from lab.harness.images import create_image

FILE = pyfuse3.ROOT_INODE + 1


class Disk(pyfuse3.Operations):
    """One file."""

    def __init__(self, backing: str, rules: str) -> None:
        super().__init__()
        self._fd = os.open(backing, os.O_RDWR)
        self._path = rules
        self._stamp = 0
        self._rules: list[dict[str, int | str]] = []

    def _read_rules(self) -> None:
        stamp = os.stat(self._path).st_mtime_ns
        if stamp != self._stamp:
            self._stamp = stamp
            self._rules = json.loads(Path(self._path).read_text())

    async def _check(self, operation: str, start: int = 0, length: int = 0) -> None:
        self._read_rules()
        for rule in self._rules:
            inside = operation == "flush" or (
                start < int(rule.get("end", 1 << 62)) and int(rule.get("start", 0)) < start + length
            )
            left = int(rule.get("times", 1 << 62))
            if rule["operation"] == operation and inside and left > 0:
                rule["times"] = left - 1
                if "errno" in rule:
                    raise pyfuse3.FUSEError(int(rule["errno"]))
                stamp = self._stamp
                Path(self._path).with_suffix(".held").touch()
                while self._stamp == stamp:
                    await trio.sleep(0.01)
                    self._read_rules()
                return

    def _attributes(self, inode: int) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = inode
        entry.st_mode = stat.S_IFDIR | 0o700 if inode == pyfuse3.ROOT_INODE else stat.S_IFREG | 0o600
        entry.st_size = 0 if inode == pyfuse3.ROOT_INODE else os.fstat(self._fd).st_size
        return entry

    async def getattr(self, inode: int, ctx: object = None) -> pyfuse3.EntryAttributes:
        return self._attributes(inode)

    async def lookup(self, parent_inode: int, name: bytes, ctx: object = None) -> pyfuse3.EntryAttributes:
        if name != b"disk":
            raise pyfuse3.FUSEError(errno.ENOENT)
        return self._attributes(FILE)

    async def open(self, inode: int, flags: int, ctx: object) -> pyfuse3.FileInfo:
        return pyfuse3.FileInfo(fh=FILE, direct_io=False, keep_cache=False)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        await self._check("read", off, size)
        return os.pread(self._fd, size, off)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        await self._check("write", off, len(buf))
        return os.pwrite(self._fd, buf, off)

    async def fsync(self, fh: int, datasync: bool) -> None:
        await self._check("flush")
        os.fdatasync(self._fd)


class FaultyDisk:
    """The loop device over such a file; `path` is its name. To be closed."""

    def __init__(self, directory: Path, size: str) -> None:
        self._rules = directory / "rules.json"
        self.fail()
        self._mount = directory / "disk.mnt"
        self._mount.mkdir()
        backing = create_image(directory / "disk.img", size)
        command = [sys.executable, __file__, str(backing), str(self._mount), str(self._rules)]
        self._daemon = subprocess.Popen(command, env=programs.environment())
        deadline = time.monotonic() + 30
        while not (self._mount / "disk").exists():
            assert time.monotonic() < deadline, "the disk's daemon doesn't serve"
            time.sleep(0.02)
        options = ["--direct-io=on", "-f", "--show", str(self._mount / "disk")]
        said = subprocess.run(["losetup", *options], check=True, capture_output=True, text=True)
        self.path = Path(said.stdout.strip())

    def fail(self, *rules: dict[str, int | str]) -> None:
        """From now on these requests fail, and no others."""
        fresh = self._rules.with_suffix(".new")
        fresh.write_text(json.dumps(rules))
        fresh.replace(self._rules)

    @property
    def holds(self) -> bool:
        """Whether a request was held since the disk was made."""
        return self._rules.with_suffix(".held").exists()

    def die(self) -> None:
        """Nothing is answered any more but with errors."""
        self._daemon.kill()
        self._daemon.wait()

    def close(self) -> None:
        """Give everything back."""
        self.fail()
        subprocess.run(["losetup", "-d", str(self.path)], check=True)
        # The loop lets go of its file by itself.
        deadline = time.monotonic() + 30
        while subprocess.run(["umount", str(self._mount)], check=False, capture_output=True).returncode:
            assert time.monotonic() < deadline, f"{self._mount} stays in use"
            time.sleep(0.05)
        self._daemon.wait(30)


def main(backing: str, directory: str, rules: str) -> None:
    """Serve until unmounted."""
    pyfuse3.init(Disk(backing, rules), directory, {"fsname=faulty-disk"})
    try:
        trio.run(pyfuse3.main)
    finally:
        pyfuse3.close(unmount=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
