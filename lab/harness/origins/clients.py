"""Clients of a mount with an origin: many openers at once, and a namespace for each test."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hcfs.mountpoint.client import administer
from lab.harness.actors import errno_of, load, pattern
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.origins.server import BUCKET, OriginServer

_prefixes = itertools.count()

ALLOWED = f"allow_origin=s3://{BUCKET},allow_origin=gs://{BUCKET}"
"""Of the mounts' options."""

WARNINGS = (
    *(r"isn't fetched", r"can't be listed", r"quarantin"),
    *(r"isn't uploaded", r"can't be read while it is fetched"),
)


def namespace(
    mount: Mount, server: OriginServer, files: dict[str, bytes], *, name: str | None = None, **options: str
) -> tuple[Path, str]:
    """A namespace with an origin of its own that has these files; its directory and the keys' prefix."""
    prefix = f"p{next(_prefixes)}"
    for key, value in files.items():
        server.put(f"{prefix}/{key}", value)
    path = mount.dir / (name or f"weights-{prefix}")
    path.mkdir()
    for option, text in {"origin": server.url(prefix), **options}.items():
        os.setxattr(path, f"user.hcfs.{option}", text.encode())
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)  # it is to survive a killed daemon
    os.close(directory)
    return path, prefix


class Together:
    """Calls made by as many threads at once; each answers its value or the errno that it fails with."""

    def __init__(self, count: int, call: Callable[[], Any]) -> None:
        self._barrier = threading.Barrier(count + 1)
        self.answers: list[Any] = []
        self._call = call
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()
        self._barrier.wait()

    def _run(self) -> None:
        self._barrier.wait()
        try:
            answer = self._call()
        except OSError as error:
            self.answers.append(errno_of(_raise, error))
        else:
            self.answers.append(answer)

    def join(self) -> list[Any]:
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "a client hangs"
        return self.answers


def _raise(error: OSError) -> None:
    raise error


def content(seed: str, size: int = 700_001) -> bytes:
    return pattern(f"origin {seed}", size)


def openers(path: Path, count: int) -> Together:
    return Together(count, lambda: load(path))


def evict_all(mount: Mount, directory: Path) -> None:
    administer(str(mount.dir), "evict", namespace=directory.name)


def origin_status(mount: Mount, directory: Path) -> dict[str, Any]:
    status = mount.status()["origins"][directory.name]
    assert isinstance(status, dict)
    return status


def is_clean(path: Path) -> bool:
    return state(path) == "clean"


def sync(mount: Mount, directory: Path, *words: str) -> dict[str, Any]:
    """The answer of `hcfs sync --json`."""
    answer = json.loads(hcfs("sync", mount.dir, directory.name, *words, "--json", check=False).stdout)
    assert isinstance(answer, dict)
    return answer


def state(path: Path) -> str:
    return os.getxattr(path, "user.hcfs.state").decode()
