"""Filesystems with a flaw, and loop devices over files that a test makes itself."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest


def run(*command: object) -> str:
    """What a command prints; CalledProcessError if it fails."""
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def mount_at(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """`mount_at(name, *words)`: `mount WORDS... tmp_path/name`, undone at teardown."""
    with ExitStack() as stack:

        def mount(name: str, *words: object) -> Path:
            directory = tmp_path / name
            directory.mkdir()
            run("mount", *words, directory)
            # Lazily: after a failed test the exception still holds what the test had open.
            stack.callback(run, "umount", "-l", directory)
            return directory

        yield mount


@pytest.fixture
def ramfs(mount_at: Callable[..., Path]) -> Path:
    """A filesystem that refuses O_DIRECT, and can't punch holes."""
    return mount_at("ramfs", "-t", "ramfs", "ramfs")


@pytest.fixture
def small_tmpfs(mount_at: Callable[..., Path]) -> Path:
    """A filesystem of 1 MiB: a larger sparse image on it runs out of space."""
    return mount_at("small", "-t", "tmpfs", "-o", "size=1M", "tmpfs")


@pytest.fixture
def attach(mount_at: object) -> Iterator[Callable[..., str]]:
    """`attach(file, *options)`: a loop device over it, detached at teardown, before the filesystems go."""
    with ExitStack() as stack:

        def losetup(file: object, *options: str) -> str:
            node = run("losetup", *options, "-f", "--show", file)
            stack.callback(run, "losetup", "-d", node)
            return node

        yield losetup
