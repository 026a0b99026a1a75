"""One process of tools/lab memory load: threads that read objects, and threads that write one each.

Run as a script: memory_client.py '{"directory", "process", "readers", "writers", "length", "sources"}'. Readers go on
until the writers of this process have ended. Prints {"read": bytes, "problems": [...]}.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import threading
from typing import Any

MIB = 1 << 20


class Load:
    """The threads' common state."""

    def __init__(self, share: dict[str, Any]) -> None:
        self.share = share
        self.problems: list[str] = []
        self.read = [0] * share["readers"]
        self.done = threading.Event()
        self.start = threading.Barrier(share["readers"] + share["writers"])
        self.expected = [self._first(number) for number in range(share["sources"])]

    def _path(self, name: str) -> str:
        return os.path.join(self.share["directory"], name)

    def _first(self, number: int) -> bytes:
        with open(self._path(f"source{number}"), "rb") as file:
            return file.read(4096)

    def write(self, number: int) -> None:
        """One object, by a temporary name, in requests of 1 MiB, each different."""
        name = self._path(f"object{self.share['process']}-{number}")
        block = bytearray(os.urandom(MIB))
        with open(name + ".tmp", "wb", buffering=0) as file:
            self.start.wait()
            for at in range(self.share["length"] // MIB):
                block[:4] = at.to_bytes(4, "little")
                view = memoryview(block)
                while view:
                    view = view[file.write(view) or 0 :]
        os.rename(name + ".tmp", name)

    def read_all(self, number: int) -> None:
        """Sources, past the page cache, over and over."""
        buffer = mmap.mmap(-1, MIB)
        self.start.wait()
        source = number
        while not self.done.is_set():
            source = (source + 1) % self.share["sources"]
            fd = os.open(self._path(f"source{source}"), os.O_RDONLY | os.O_DIRECT)
            try:
                while count := os.readv(fd, [buffer]):
                    self.read[number] += count
                    if buffer[:4096] != self.expected[source]:
                        self.problems.append(f"wrong bytes in source{source}")
                        return
                    if self.done.is_set():
                        break
            finally:
                os.close(fd)

    def guarded(self, work: Any, number: int) -> None:
        """Note what fails."""
        try:
            work(number)
        except OSError as error:
            self.problems.append(f"{work.__name__} {number}: {error}")

    def run(self) -> None:
        """All threads."""
        threads = {
            work: [threading.Thread(target=self.guarded, args=(work, number)) for number in range(self.share[kind])]
            for work, kind in ((self.write, "writers"), (self.read_all, "readers"))
        }
        for group in threads.values():
            for thread in group:
                thread.start()
        for thread in threads[self.write]:
            thread.join()
        self.done.set()
        for thread in threads[self.read_all]:
            thread.join()


if __name__ == "__main__":
    load = Load(json.loads(sys.argv[1]))
    load.run()
    print(json.dumps({"read": sum(load.read), "problems": load.problems}))
