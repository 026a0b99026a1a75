"""A writer of tools/lab uploads: stores, overwrites and removes files for a while, and notes each change once it was
acknowledged.

Some names are its own, others are everybody's. A content begins with its number and ends with a digest of the whole, so
a mixture of two is known."""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
from pathlib import Path

DIGEST = 32


def content(name: str, number: int, size: int) -> bytes:
    """The number is in the first 8 bytes."""
    body = number.to_bytes(8, "little") + random.Random(f"{name} {number}").randbytes(size)
    return body + hashlib.blake2b(body, digest_size=DIGEST).digest()


def number_of(data: bytes) -> int | None:
    """Of a whole content; None for anything else."""
    body, digest = data[:-DIGEST], data[-DIGEST:]
    if len(body) < 8 or hashlib.blake2b(body, digest_size=DIGEST).digest() != digest:
        return None
    return int.from_bytes(body[:8], "little")


def main(directory: str, journal: str, seed: int, seconds: float) -> int:
    """Notes are lines of JSON: [what, name, number, durable]; `begin` before a change, `done` after it."""
    place, chance = Path(directory), random.Random(seed)
    own = [f"own/{seed % 100}-{number}" for number in range(4)]
    common = [f"common/{number}" for number in range(4)]
    number = seed * 100_000
    end = time.monotonic() + seconds
    with open(journal, "a", buffering=1) as notes:
        while time.monotonic() < end:
            number += 1
            name = chance.choice(own if chance.random() < 0.7 else common)
            what = chance.choices(("store", "rename", "unlink"), (5, 4, 2))[0]
            print(json.dumps(["begin", name, 0 if what == "unlink" else number, False]), file=notes)
            try:
                _change(place, what, name, number, chance)
                durable = chance.random() < 0.3
                if durable:
                    _fsync(place)
            except OSError as error:
                print(json.dumps(["failed", name, number, os.strerror(error.errno or 0)]), file=notes)
                continue
            print(json.dumps(["done", name, 0 if what == "unlink" else number, durable]), file=notes)
    return 0


def _change(place: Path, what: str, name: str, number: int, chance: random.Random) -> None:
    path = place / name
    if what == "unlink":
        path.unlink(missing_ok=True)
        return
    data = content(name, number, chance.choice((0, 5_000, 100_000, 1_000_000)))
    target = path if what == "store" else path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with open(target, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
    if target != path:
        os.rename(target, path)


def _fsync(place: Path) -> None:
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
