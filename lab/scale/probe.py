"""What another client feels: asks a mount for small things in a loop, until its standard input ends, and prints how
long each took, in seconds.

    python -m lab.scale.probe DIRECTORY FILE SKIP

Each round: a name that isn't there, one of the names of `lab.harness.many` behind the first SKIP, which the kernel
doesn't know yet, and a direct read of FILE's first block. All three reach the daemon."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import sys
import time
from collections.abc import Callable
from itertools import count, islice

from lab.harness.many import names

PAUSE = 0.001
"""Seconds between rounds."""


def main(directory: str, path: str, skip: str) -> None:
    buffer = mmap.mmap(-1, 4096)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    known = islice(names(), int(skip), None)
    took: list[float] = []

    def timed(call: Callable[[], object]) -> None:
        begin = time.perf_counter()
        with contextlib.suppress(FileNotFoundError):
            call()
        took.append(time.perf_counter() - begin)

    print("ready", flush=True)
    for number in count():
        timed(lambda number=number: os.stat(f"{directory}/absent-{os.getpid()}-{number}"))  # type: ignore[misc]
        name = os.path.join(os.fsencode(directory), next(known))
        timed(lambda name=name: os.stat(name))  # type: ignore[misc]
        timed(lambda: os.preadv(fd, [buffer], 0))
        if select.select([sys.stdin], [], [], PAUSE)[0]:
            break
    print(json.dumps(took))


if __name__ == "__main__":
    main(*sys.argv[1:4])
