"""The compiled client (client.c): what a cache's clients do, at the speed of C."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lab.bench.backing import run
from lab.bench.error import BenchError

SOURCE = Path(__file__).with_name("client.c")


class Client:
    """Compiled when it is made."""

    def __init__(self, scratch: Path) -> None:
        self._program = scratch / "bench_client"
        # What it writes on the way goes where everything goes that is to be removed.
        run("gcc", "-O2", "-pthread", "-o", self._program, SOURCE, temporary=scratch)

    def __call__(self, mode: str, *, names: Iterable[str] | None = None, **words: Any) -> dict[str, Any]:
        """What the mode prints. Blocks. BenchError when a call failed or bytes were wrong."""
        given = [f"{name}={int(value) if isinstance(value, bool) else value}" for name, value in words.items()]
        feed = None if names is None else "".join(f"{name}\n" for name in names)
        answer: dict[str, Any] = json.loads(run(self._program, mode, *given, feed=feed))
        return answer

    def drop(self, path: Path) -> None:
        """Write a file back and take it out of the page cache. BenchError when much of it stays."""
        kept = self("drop", path=path)["resident"]
        if kept > 0.01:
            raise BenchError(f"{kept:.0%} of {path} stayed in the page cache")


def object_path(directory: Path, number: int) -> str:
    """Where the client stores an object of that number."""
    return f"{directory}/bench-model@0x{number:08x}@0@{number:032x}.data"
