"""A reader of the torture tool: whatever it opens is whole, and stays so while it is open.

Run as a script: torture_reader.py DIRECTORY JOURNAL SEED. It notes what it found under the names whose writers can be
asked (see torture_journal), and ends like a writer.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import sys
import time
from pathlib import Path

from crc32c import crc32c

from lab.torture.calls import WAYS, gone, read_fd
from lab.torture.journal import Journal
from lab.torture.objects import NotWhole, identify

HELD = 6
"""Handles kept open: their content outlives whatever happens to the names."""


class Reader:
    """One process's work."""

    def __init__(self, directory: Path, journal: Path, seed: str) -> None:
        self.directory = directory
        self.journal = Journal(journal)
        self.chance = random.Random(seed)
        self.held: list[tuple[int, int, str]] = []
        """(handle, number of the object, path)"""
        self.stopping = False

    def run(self) -> None:
        """Until told to stop."""
        steps = [self.load, self.load, self.load, self.load, self.load, self.again, self.listing, self.checksum]
        while not self.stopping:
            self.chance.choice(steps)()

    def load(self) -> None:
        """A name that may or may not be there."""
        if self.chance.random() < 0.4:
            path = f"shared/s{self.chance.randrange(6)}"
        else:
            below = self.chance.choice(["", "", "d0/", "d1/"])
            path = f"w{self.chance.randrange(6)}/{below}n{self.chance.randrange(8)}"
        way = self.chance.choice(WAYS)
        began = time.monotonic_ns()
        flags = os.O_RDONLY | os.O_NOFOLLOW | (os.O_DIRECT if way == "direct" else 0)
        try:
            fd = os.open(self.directory / path, flags)
        except OSError as error:
            if error.errno == errno.ENOENT and os.path.isdir(self.directory):
                self.note(path, None, began)
            elif error.errno != errno.ELOOP:
                raise
            return
        tree, number = self.whole(read_fd(fd, self.chance, way), path, way)
        if path[0] == "w" and f"w{tree}" != path.partition("/")[0]:
            raise NotWhole(f"{path} holds object {number} of tree {tree}")
        self.note(path, number, began)
        if len(self.held) < HELD and self.chance.random() < 0.3:
            self.held.append((fd, number, path))
        else:
            os.close(fd)

    def note(self, path: str, number: int | None, began: int) -> None:
        """For names that can't move with a directory."""
        if path.count("/") == 1:
            self.journal.note("read", path, number, began)

    def whole(self, data: bytes, path: str, way: str) -> tuple[int, int]:
        """Identify what was read."""
        try:
            return identify(data)
        except NotWhole as error:
            raise NotWhole(f"{path}, by {way}: {error}") from None

    def again(self) -> None:
        """What was opened earlier still reads the same."""
        if not self.held:
            return
        fd, number, path = self.held[index := self.chance.randrange(len(self.held))]
        way = self.chance.choice([way for way in WAYS if way != "direct"])
        found = self.whole(read_fd(fd, self.chance, way), f"{path}, held open", way)[1]
        if found != number:
            raise NotWhole(f"{path}: the open handle read object {number} and now reads {found}, by {way}")
        if self.chance.random() < 0.4:
            os.close(fd)
            del self.held[index]

    def checksum(self) -> None:
        """The checksum of the whole object as hcfs tells it is that of the bytes."""
        if not self.held:
            return
        fd, _, path = self.chance.choice(self.held)
        try:
            told = os.getxattr(fd, "user.hcfs.crc32c")
        except OSError as error:
            if error.errno in (errno.ENODATA, errno.ESTALE):
                return
            raise
        if told != b"%08x" % crc32c(read_fd(fd, self.chance, "read")):
            raise NotWhole(f"{path}: user.hcfs.crc32c is {told!r}, which its bytes don't have")

    def listing(self) -> None:
        """No name twice, and no temporary name where nobody links one."""
        directory = self.directory / self.chance.choice(["shared", *[f"w{number}" for number in range(6)]])
        names = [entry.name for entry in os.scandir(directory)]
        if len(set(names)) != len(names):
            raise AssertionError(f"{directory.name} lists a name twice: {sorted(names)}")
        if directory.name == "shared" and any(name.endswith(".tmp") for name in names):
            raise AssertionError(f"{directory.name} lists a temporary name: {sorted(names)}")
        os.statvfs(self.directory)

    def stop(self, *_: object) -> None:
        """After the step under way."""
        self.stopping = True


def main(directory: str, journal: str, seed: str) -> int:
    """Work until told to stop, the mount goes, or the process is killed."""
    reader = Reader(Path(directory), Path(journal), seed)
    signal.signal(signal.SIGUSR1, reader.stop)
    try:
        reader.run()
        return 0
    except OSError as error:
        if gone(Path(directory)):
            return 3
        print(f"reader: {type(error).__name__}: {error}", file=sys.stderr)
    except (ValueError, AssertionError) as error:
        print(f"reader: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
