"""How the torture tool's writers write: every way in which programs fill a file and give it its name."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.torture.calls import read_fd
from lab.torture.objects import HEADER_BYTES, body, header, identify

PAGE = 4096
LARGEST = 2 << 20


class Files:
    """The calls on files of one directory of a mount. `publishing` and `maybe_die` come from the writer."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.directory = directory
        self.chance = chance
        self.temporaries: set[Path] = set()

    def publishing(self) -> None:
        """Called before the call that makes a change visible."""
        raise NotImplementedError

    def maybe_die(self) -> None:
        """A place where the process may end itself."""
        raise NotImplementedError

    def call(self, function: Callable[..., Any], *words: Any, raw: bool = False) -> None:
        """One system call that is an operation by itself; paths are below the directory (raw: only the last one)."""
        paths = [
            self.directory / word if isinstance(word, str) and (not raw or index == len(words) - 1) else word
            for index, word in enumerate(words)
        ]
        if function is os.setxattr:
            paths[1] = words[1]
        self.publishing()
        function(*paths)

    # --- whole contents -----------------------------------------------------------------------------------------------

    def by_rename(self, path: str, data: bytes, mode: int, tag: str) -> None:
        """Written under a temporary name and renamed."""
        temporary = self._temporary(path)
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | self._direct(data), 0o644)
        try:
            self._fill(fd, data)
            if mode != 0o644:
                os.fchmod(fd, mode)
            if tag:
                os.setxattr(fd, "user.tag", tag.encode())
        finally:
            os.close(fd)
        self.publishing()
        os.rename(temporary, self.directory / path)
        self.temporaries.discard(temporary)

    def by_link(self, path: str, data: bytes) -> None:
        """Written under a temporary name and linked, so as to replace nothing."""
        temporary = self._temporary(path)
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | self._direct(data), 0o644)
        try:
            self._fill(fd, data)
        finally:
            os.close(fd)
        self.publishing()
        os.link(temporary, self.directory / path)
        self.temporaries.discard(temporary)

    def by_close(self, path: str, data: bytes, flags: int = os.O_TRUNC) -> None:
        """Written under its own name."""
        fd = os.open(self.directory / path, os.O_RDWR | os.O_CREAT | flags | self._direct(data), 0o644)
        try:
            self._fill(fd, data)
            if self.chance.random() < 0.1:
                os.fsync(fd)
            if self.chance.random() < 0.1:
                os.close(os.dup(fd))
            self.publishing()
        finally:
            os.close(fd)

    def in_version(self, path: str, tree: int, number: int) -> None:
        """A part of what is there is overwritten, cut or extended, and then the header is written anew."""
        fd = os.open(self.directory / path, os.O_RDWR)
        try:
            old = read_fd(fd, self.chance, "read")
            identify(old)
            content = bytearray(old[HEADER_BYTES:])
            change = self.chance.choice([self._patch, self._patch, self._cut, self._append, self._patch_mapped])
            change(fd, content, number)
            self.maybe_die()
            os.pwrite(fd, header(tree, number, content), 0)
            self.publishing()
        finally:
            os.close(fd)

    def clear_temporaries(self) -> None:
        """After a failure: what was written under temporary names is given up."""
        for temporary in self.temporaries:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        self.temporaries.clear()

    # --- filling ------------------------------------------------------------------------------------------------------

    def _temporary(self, path: str) -> Path:
        temporary = self.directory / f"{path}.tmp"
        self.temporaries.add(temporary)
        return temporary

    def _direct(self, data: bytes) -> int:
        whole = len(data) % PAGE == 0 and self.chance.random() < 0.5
        return os.O_DIRECT if whole else 0

    def _fill(self, fd: int, data: bytes) -> None:
        if len(data) % PAGE == 0 and data:
            self._fill_aligned(fd, data)
            return
        way = self.chance.choice(["once", "pieces", "shuffled", "mapped"])
        if way == "mapped":
            os.ftruncate(fd, len(data))
            with mmap.mmap(fd, len(data)) as mapping:
                for start in range(0, len(data), 300_000):
                    mapping[start : start + 300_000] = data[start : start + 300_000]
                    self.maybe_die()
            return
        step = len(data) if way == "once" else self.chance.choice([65_536, 100_001])
        starts = list(range(0, len(data), step))
        if way == "shuffled":
            self.chance.shuffle(starts)
        for start in starts:
            self._all(fd, data[start : start + step], start)
            self.maybe_die()

    def _fill_aligned(self, fd: int, data: bytes) -> None:
        """From a page-aligned buffer, which O_DIRECT may ask for."""
        with mmap.mmap(-1, len(data)) as buffer:
            buffer[:] = data
            view = memoryview(buffer)
            at = 0
            while at < len(data):
                part = view[at : at + (1 << 20)]
                at += os.pwritev(fd, [part], at)
                del part
                self.maybe_die()
            del view

    def _all(self, fd: int, data: bytes | bytearray, at: int) -> None:
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done:], at + done)

    def _patch(self, fd: int, content: bytearray, number: int) -> None:
        start = self.chance.randrange(len(content) + 1)
        piece = body(number, min(self.chance.choice([1, 512, 5000, 100_000]), len(content) - start))
        content[start : start + len(piece)] = piece
        self._all(fd, piece, HEADER_BYTES + start)

    def _patch_mapped(self, fd: int, content: bytearray, number: int) -> None:
        if not content:
            return
        start = self.chance.randrange(len(content))
        piece = body(number, min(self.chance.choice([1, 5000, 100_000]), len(content) - start))
        content[start : start + len(piece)] = piece
        with mmap.mmap(fd, HEADER_BYTES + len(content)) as mapping:
            mapping[HEADER_BYTES + start : HEADER_BYTES + start + len(piece)] = piece
            self.maybe_die()
            if self.chance.random() < 0.5:
                mapping.flush()

    def _cut(self, fd: int, content: bytearray, number: int) -> None:  # noqa: ARG002
        size = self.chance.randrange(len(content) + 1)
        del content[size:]
        os.ftruncate(fd, HEADER_BYTES + size)

    def _append(self, fd: int, content: bytearray, number: int) -> None:
        piece = body(number, self.chance.choice([1, 3000, 70_000]))
        if len(content) + len(piece) > LARGEST:
            return
        hole = self.chance.choice([0, 0, 10_000])
        content += bytes(hole) + piece
        self._all(fd, piece, HEADER_BYTES + len(content) - len(piece))
