"""A writer for the kill rounds: a process that goes on changing objects, and notes outside the mount what it does.

Run as a script: churn.py DIRECTORY JOURNAL WRITER SEED. It ends with 3 when the mount is gone, and with 1, saying why,
when a call fails that mustn't.

The journal is a line a step, JSON: ["begin", {name: number or null, ...}] before an operation, with what each name will
then hold (null: nothing), ["done"] after it, ["synced"] after an fsync that succeeded.
"""

from __future__ import annotations

import errno
import json
import os
import random
import struct
import sys
import zlib
from pathlib import Path

_HEADER = struct.Struct("<8sIIQ")
_MAGIC = b"churned!"


def content(writer: int, number: int, body: bytes) -> bytes:
    """An object that tells by itself whether it is whole, and which one it is."""
    return _HEADER.pack(_MAGIC, writer, zlib.crc32(body), number) + body


def identify(data: bytes) -> tuple[int, int]:
    """Writer and number of an object; ValueError when it isn't whole. Its length is covered by the checksum."""
    magic, writer, checksum, number = _HEADER.unpack_from(data)
    if magic != _MAGIC or zlib.crc32(data[_HEADER.size :]) != checksum:
        raise ValueError(f"{len(data)} bytes that are no object's, header {data[: _HEADER.size].hex()}")
    return writer, number


class Writer:
    """One process's work on its own names, as many of them with slashes as without."""

    def __init__(self, directory: Path, journal: Path, writer: int, seed: str) -> None:
        self.directory = directory
        self.journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.writer = writer
        self.chance = random.Random(seed)
        self.names = [f"{writer}-{number}" for number in range(6)] + [f"d{writer}/{number}" for number in range(6)]
        self.holds: dict[str, int] = {}
        for name in self.names:
            try:
                self.holds[name] = identify((directory / name).read_bytes())[1]
            except FileNotFoundError:
                continue
        self.number = max(self.holds.values(), default=0) + self.chance.randrange(1, 1 << 40)
        (directory / f"d{writer}").mkdir(exist_ok=True)

    def note(self, *words: object) -> None:
        """Append a line; one write, so a killed writer leaves no half of one."""
        os.write(self.journal, json.dumps(words).encode() + b"\n")

    def run(self) -> None:
        """For ever."""
        steps = [self.rename_in, self.rename_in, self.close, self.patch, self.append, self.unlink, self.move, self.sync]
        while True:
            self.chance.choice(steps)()

    def change(self, outcome: dict[str, int | None]) -> None:
        """Note that the operation is over; its outcome was noted when it began."""
        self.note("done")
        for name, number in outcome.items():
            if number is None:
                self.holds.pop(name, None)
            else:
                self.holds[name] = number

    def fresh(self) -> tuple[int, bytes]:
        """The next object."""
        self.number += 1
        body = self.chance.randbytes(self.chance.choice([0, 1, 4000, 50_000, 300_000, 900_000]))
        return self.number, content(self.writer, self.number, body)

    def rename_in(self) -> None:
        """By a temporary name and a rename, in one write or several, buffered."""
        name, (number, data) = self.chance.choice(self.names), self.fresh()
        self.note("begin", {name: number})
        fd = os.open(self.directory / f"{name}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        step = self.chance.choice([len(data), 65536, 100_001])
        for start in range(0, len(data), step):
            os.write(fd, data[start : start + step])
        os.close(fd)
        os.rename(self.directory / f"{name}.tmp", self.directory / name)
        self.change({name: number})

    def close(self) -> None:
        """By its own name; close publishes."""
        name, (number, data) = self.chance.choice(self.names), self.fresh()
        self.note("begin", {name: number})
        fd = os.open(self.directory / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for start in range(0, len(data), 200_000):
            os.write(fd, data[start : start + 200_000])
        os.close(fd)
        self.change({name: number})

    def patch(self) -> None:
        """Part of an object is overwritten, and then its header, in one version."""
        if not self.holds:
            return
        name = self.chance.choice(sorted(self.holds))
        self.number += 1
        self.note("begin", {name: self.number})
        fd = os.open(self.directory / name, os.O_RDWR)
        body = bytearray(os.pread(fd, 1 << 21, _HEADER.size))
        start = self.chance.randrange(len(body) + 1)
        piece = self.chance.randbytes(min(self.chance.choice([1, 5000, 100_000]), len(body) - start))
        body[start : start + len(piece)] = piece
        os.pwrite(fd, piece, _HEADER.size + start)
        os.pwrite(fd, content(self.writer, self.number, bytes(body))[: _HEADER.size], 0)
        os.close(fd)
        self.change({name: self.number})

    def append(self) -> None:
        """An object grows, and its header follows."""
        if not self.holds:
            return
        name = self.chance.choice(sorted(self.holds))
        self.number += 1
        self.note("begin", {name: self.number})
        fd = os.open(self.directory / name, os.O_RDWR)
        body = os.pread(fd, 1 << 21, _HEADER.size)[:600_000]
        os.ftruncate(fd, _HEADER.size + len(body))
        added = self.chance.randbytes(self.chance.choice([1, 3000, 70_000]))
        os.pwrite(fd, added, _HEADER.size + len(body))
        os.pwrite(fd, content(self.writer, self.number, body + added)[: _HEADER.size], 0)
        os.close(fd)
        self.change({name: self.number})

    def unlink(self) -> None:
        """A name goes."""
        if self.holds:
            name = self.chance.choice(sorted(self.holds))
            self.note("begin", {name: None})
            os.unlink(self.directory / name)
            self.change({name: None})

    def move(self) -> None:
        """A committed object gets another of the names, over what is there."""
        if self.holds:
            source, target = self.chance.choice(sorted(self.holds)), self.chance.choice(self.names)
            if source != target:
                number = self.holds[source]
                self.note("begin", {source: None, target: number})
                os.rename(self.directory / source, self.directory / target)
                self.change({source: None, target: number})

    def sync(self) -> None:
        """Everything done so far is durable."""
        fd = os.open(self.directory, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        self.note("synced")


def main(directory: str, journal: str, writer: str, seed: str) -> int:
    """Work until the mount goes or the process is killed."""
    try:
        Writer(Path(directory), Path(journal), int(writer), seed).run()
    except OSError as error:
        if error.errno in (errno.ENOTCONN, errno.ECONNABORTED):
            return 3
        print(f"writer {writer}: {error}", file=sys.stderr)
    except ValueError as error:
        print(f"writer {writer}: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
