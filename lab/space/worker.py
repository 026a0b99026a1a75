"""One process of the random operations. Run as a script: space_worker.py DIRECTORY SEED.

Reads a line a command: {"run": N} does N operations, {"close": true} closes what it holds open, {"remove": true}
removes all of its files, {"look": true} does nothing. Answers with a line each: {"done", "refused": {errno: count},
"gone": {inode: bytes}, "staged": {inode: bytes}}, where gone is what it holds open of files without names, and staged
what waits under staging names.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import sys
from collections import Counter
from contextlib import suppress

EXPECTED = {
    *(errno.ENOENT, errno.EEXIST, errno.EDQUOT, errno.ENOSPC, errno.EXDEV, errno.ENOTEMPTY, errno.EISDIR),
    *(errno.ENOTDIR, errno.ESTALE, errno.EPERM, errno.EINVAL),
}
"""What calls on names that others change, and evict, may answer."""
NAMESPACES = ("open", "limited", "salted")
HELD = 12


class Worker:
    """Its own directory in each namespace, and names that all of them share."""

    def __init__(self, root: str, seed: str) -> None:
        self.chance = random.Random(seed)
        self.number = os.getpid()
        self.root = root
        self.held: list[int] = []
        self.refused: Counter[str] = Counter()
        self.waiting: set[str] = set()
        self.random = os.urandom(4 << 20)
        self.steps = [
            *(self.store, self.store, self.store, self.store_directly, self.leave, self.patch, self.append),
            *(self.truncate, self.rename, self.rename_away, self.link, self.unlink, self.unlink, self.hold),
            *(self.hold, self.release, self.give_up, self.attributes, self.directory, self.symlink, self.rename_left),
            self.list,
        ]

    def name(self) -> str:
        """A path; of some, other processes use the same."""
        space = self.chance.choice(NAMESPACES)
        who = self.chance.choice(["shared", f"own{self.number}"])
        os.makedirs(os.path.join(self.root, space, who), exist_ok=True)
        number = self.chance.randrange(60)
        if space == "salted":
            salt = self.chance.choice(["", "@a", "@b", "@c"])
            return os.path.join(self.root, space, who, f"m@0x01000100@0@{number:08x}{salt}.data")
        return os.path.join(self.root, space, who, f"f{number}")

    def bytes(self, most: int = 21) -> memoryview:
        """Some content; lengths on a logarithmic scale, many not whole blocks."""
        length = min(int(2 ** self.chance.uniform(0, most)), len(self.random))
        start = self.chance.randrange(len(self.random) - length + 1)
        return memoryview(self.random)[start : start + length]

    def write(self, path: str, flags: int = os.O_TRUNC) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
        try:
            data = self.bytes()
            while data:
                data = data[os.write(fd, data[: self.chance.choice([len(data), 100_000])]) :]
        finally:
            os.close(fd)

    def store(self) -> None:
        path = self.name()
        self.leave_at(path)
        os.rename(path + ".tmp", path)
        self.waiting.discard(path + ".tmp")

    def store_directly(self) -> None:
        self.write(self.name())

    def leave_at(self, path: str) -> None:
        self.waiting.add(path + ".tmp")
        self.write(path + ".tmp")

    def leave(self) -> None:
        self.leave_at(self.name())

    def rename_left(self) -> None:
        if self.waiting:
            os.rename(self.chance.choice(sorted(self.waiting)), self.name())

    def patch(self) -> None:
        fd = os.open(self.name(), os.O_RDWR)
        try:
            for _ in range(self.chance.randrange(3)):
                os.pwrite(fd, self.bytes(18), self.chance.randrange(1 << 20))
        finally:
            os.close(fd)

    def append(self) -> None:
        self.write(self.name(), os.O_APPEND)

    def truncate(self) -> None:
        os.truncate(self.name(), self.chance.choice([0, 1, 4096, 100_000, 1 << 20]))

    def rename(self) -> None:
        path = self.name()
        os.rename(path, os.path.join(os.path.dirname(path), os.path.basename(self.name())))

    def rename_away(self) -> None:
        path = self.name()
        os.rename(path, os.path.join(os.path.dirname(path), "moved" + self.chance.choice("abc")))

    def link(self) -> None:
        os.link(self.name(), self.name())

    def unlink(self) -> None:
        os.unlink(self.name())

    def hold(self) -> None:
        if len(self.held) < HELD:
            fd = os.open(self.name(), os.O_RDONLY)
            self.held.append(fd)
            os.pread(fd, 100_000, self.chance.randrange(1 << 18))

    def release(self) -> None:
        if self.held:
            os.close(self.held.pop(self.chance.randrange(len(self.held))))

    def give_up(self) -> None:
        """Unlinked while it is written."""
        path = self.name()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            os.write(fd, self.bytes())
            os.unlink(path)
            os.write(fd, self.bytes())
        finally:
            os.close(fd)

    def attributes(self) -> None:
        path = self.name()
        os.chmod(path, self.chance.choice([0o600, 0o644]))
        os.setxattr(path, "user.note", bytes(self.chance.randrange(300)))

    def directory(self) -> None:
        path = f"{self.name()}.d"
        with suppress(FileExistsError):
            os.mkdir(path)
        if self.chance.random() < 0.5:
            os.rmdir(path)

    def symlink(self) -> None:
        path = f"{self.name()}.s"
        with suppress(FileExistsError):
            os.symlink("f1", path)
        if self.chance.random() < 0.5:
            os.unlink(path)

    def list(self) -> None:
        for entry in os.scandir(os.path.dirname(self.name())):
            with suppress(FileNotFoundError):
                entry.stat(follow_symlinks=False)

    def run(self, count: int) -> None:
        """So many operations; OSError for an error that mustn't be."""
        for _ in range(count):
            try:
                self.chance.choice(self.steps)()
            except OSError as error:
                if error.errno not in EXPECTED:
                    raise
                self.refused[errno.errorcode[error.errno or 0]] += 1

    def close(self) -> None:
        while self.held:
            os.close(self.held.pop())

    def remove(self) -> None:
        """All files, those of other processes too; more than one process may do so."""
        self.close()
        for space in NAMESPACES:
            for _ in range(3):
                shutil.rmtree(os.path.join(self.root, space, f"own{self.number}"), ignore_errors=True)
                shutil.rmtree(os.path.join(self.root, space, "shared"), ignore_errors=True)
        for path in self.waiting:
            with suppress(FileNotFoundError):
                os.unlink(path)
        self.waiting.clear()

    def answer(self) -> dict[str, object]:
        """What it holds."""
        gone = {}
        for fd in self.held:
            try:
                os.getxattr(fd, "user.hcfs.extents")  # of what has a name; the kernel's count of links may be older
            except OSError:
                stat = os.fstat(fd)
                gone[stat.st_ino] = stat.st_blocks * 512
        staged = {}
        for path in sorted(self.waiting):
            try:
                stat = os.stat(path)
            except FileNotFoundError:
                self.waiting.discard(path)
                continue
            if os.getxattr(path, "user.hcfs.state") == b"staged":
                staged[stat.st_ino] = stat.st_blocks * 512
        return {"done": True, "refused": self.refused, "gone": gone, "staged": staged}


def main(root: str, seed: str) -> int:
    """Serve commands until they end."""
    worker = Worker(root, seed)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if "run" in command:
                worker.run(command["run"])
            elif "close" in command:
                worker.close()
            elif "remove" in command:
                worker.remove()
            answer = worker.answer()
        except OSError as error:
            answer = {"error": repr(error)}
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
