"""One file of a mount and its model: every call is made on both, and what comes back must be the same.

The model knows hcfs's versions (docs/semantics.md): a write-open of a committed file begins a version that this process
alone sees; the last close publishes it, or, under a temporary name, a rename does. Handles go on with the content that
they were opened on.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

LARGEST = 3 << 20
HANDLES, MAPPINGS = 6, 3
EDGES = [1 << 12, 1 << 16, 1 << 18, 1 << 20, 2 << 20]
"""Sizes of blocks, granules, requests and windows: most mistakes are beside them."""


class Difference(Exception):
    """The mount answered what the model doesn't."""


@dataclass(eq=False)
class Content:
    """The bytes of one inode."""

    data: bytearray
    writers: int = 0
    modified: bool = False
    named: bool = True


@dataclass(eq=False)
class Handle:
    """An open descriptor, or a mapping, which keeps the file open as one does."""

    number: int
    content: Content
    writable: bool
    append: bool = False
    direct: bool = False
    mapping: mmap.mmap | None = None
    offset: int = 0


@dataclass
class File:
    """The file, under a temporary or a final name, and everything that is open of it."""

    directory: Path
    chance: random.Random
    temporary: bool = False
    committed: Content | None = None
    """What other processes see under the final name."""
    own: Content | None = None
    """The version that this process sees instead; its name is `path`."""
    handles: list[Handle] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    @property
    def final(self) -> Path:
        return self.directory / "file"

    @property
    def path(self) -> Path:
        """The name that this process works under."""
        return self.directory / ("file.tmp" if self.temporary else "file")

    # --- choices ------------------------------------------------------------------------------------------------------

    def any(self, *, writable: bool | None = None, mapped: bool = False) -> Handle | None:
        """An open handle, of those that are writable or not, descriptors or mappings."""
        found = [h for h in self.handles if writable in (None, h.writable) and mapped == (h.mapping is not None)]
        return self.chance.choice(found) if found else None

    def length(self) -> int:
        """A number of bytes for one call."""
        kind = self.chance.random()
        if kind < 0.4:
            return self.chance.randrange(1, 6000)
        if kind < 0.7:
            return self.chance.choice([4096, 8192, 65536, 131072])
        if kind < 0.97:
            return self.chance.randrange(1, 200_000)
        return self.chance.randrange(1, LARGEST // 2)

    def place(self, size: int) -> int:
        """An offset in, at or beside a file of this size, often beside an edge."""
        if self.chance.random() < 0.3:
            edge = self.chance.choice(EDGES) * self.chance.randrange(1, 4)
            return max(0, min(edge + self.chance.randrange(-3, 4), LARGEST))
        return self.chance.randrange(size + 1)

    def note(self, text: str) -> None:
        """For whoever has to find out."""
        self.done.append(text)
        del self.done[:-60]

    # --- opening and closing ------------------------------------------------------------------------------------------

    def seen(self) -> Content | None:
        """What the working name means to this process."""
        return self.own if self.own is not None or self.temporary else self.committed

    def open(self) -> None:
        """One more handle, of any kind."""
        if len(self.handles) >= HANDLES:
            return
        kind = self.chance.choice(["read", "write", "write", "append", "direct", "truncate"])
        writable = kind in ("write", "append", "truncate") or (kind == "direct" and self.chance.random() < 0.7)
        present = self.seen()
        if present is None and not writable:
            return
        flags = (os.O_RDWR | os.O_CREAT) if writable else os.O_RDONLY
        flags |= {"append": os.O_APPEND, "direct": os.O_DIRECT, "truncate": os.O_TRUNC}.get(kind, 0)
        self.note(f"open {kind} {'rw' if writable else 'r'}")
        number = os.open(self.path, flags, 0o644)
        if writable and self.own is None:
            self.own = Content(bytearray(present.data if present else b""), modified=present is None)
        content = self.own or present
        assert content is not None
        if kind == "truncate" and content.data:
            content.data.clear()
            content.modified = True
        self._add(Handle(number, content, writable, kind == "append", kind == "direct"))

    def duplicate(self) -> None:
        """dup and close: a FLUSH, and nothing else."""
        handle = self.any()
        if handle is not None:
            self.note("dup and close")
            os.close(os.dup(handle.number))

    def map(self) -> None:
        """Map the file, writable or not; the mapping keeps it open."""
        handle = self.any()
        if handle is None or not handle.content.data or sum(h.mapping is not None for h in self.handles) >= MAPPINGS:
            return
        self.note(f"mmap {'rw' if handle.writable else 'r'} {len(handle.content.data)}")
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if handle.writable else 0)
        mapping = mmap.mmap(handle.number, len(handle.content.data), mmap.MAP_SHARED, protection)
        self._add(Handle(-1, handle.content, handle.writable, mapping=mapping))

    def close(self, handle: Handle | None = None) -> None:
        """Close one; the last writer's close publishes, under a final name."""
        handle = handle or (self.chance.choice(self.handles) if self.handles else None)
        if handle is None:
            return
        self.note("munmap" if handle.mapping is not None else "close")
        self.handles.remove(handle)
        if handle.mapping is not None:
            handle.mapping.close()
        else:
            os.close(handle.number)
        content = handle.content
        content.writers -= handle.writable
        if not handle.writable or content.writers or content is not self.own or self.temporary:
            return
        self.own = None
        if content.modified:
            self.committed = content

    def close_all(self) -> None:
        """Every handle and mapping."""
        while self.handles:
            self.close()

    def _add(self, handle: Handle) -> None:
        handle.content.writers += handle.writable
        self.handles.append(handle)

    # --- content ------------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read a piece and compare it."""
        handle = self.any()
        if handle is None:
            return
        data = handle.content.data
        at, length = self.place(len(data)), self.length()
        if handle.direct and self.chance.random() < 0.7:
            at, length = at // 4096 * 4096, -(-length // 4096) * 4096
        self.note(f"pread {at}+{length}{' direct' if handle.direct else ''}")
        with mmap.mmap(-1, length) as buffer:
            count = os.preadv(handle.number, [buffer], at)
            self.same(buffer[:count], data[at : at + length], at)

    def write(self) -> None:
        """Write a piece: pwrite, writev or append."""
        handle = self.any(writable=True)
        if handle is None:
            return
        data = handle.content.data
        piece = self.chance.randbytes(self.length())
        at = len(data) if handle.append else self.place(len(data) + 20_000)
        if handle.direct:
            at, piece = at // 4096 * 4096, piece.ljust(-(-len(piece) // 4096) * 4096, b"d")
        if at + len(piece) > LARGEST:
            return
        self.note(f"{'append' if handle.append else 'pwrite'} {at}+{len(piece)}{' direct' if handle.direct else ''}")
        with mmap.mmap(-1, len(piece)) as buffer:
            buffer[:] = piece
            done = 0
            while done < len(piece):
                with memoryview(buffer)[done:] as rest:
                    # A file that was opened O_APPEND appends, whatever the offset.
                    done += os.pwritev(handle.number, [rest], at + done)
        self._put(handle.content, at, piece)

    def truncate(self) -> None:
        """Cut or extend, by a handle."""
        handle = self.any(writable=True)
        if handle is None:
            return
        size = self.place(len(handle.content.data) + 50_000)
        self.note(f"ftruncate {size}")
        os.ftruncate(handle.number, size)
        self._resize(handle.content, size)

    def truncate_path(self) -> None:
        """Cut or extend, by name: a version is made and published within the call."""
        present = self.seen()
        if present is None:
            return
        size = self.place(len(present.data) + 50_000)
        self.note(f"truncate {size}")
        os.truncate(self.path, size)
        if self.own is not None:
            self._resize(self.own, size)
        else:
            content = Content(bytearray(present.data))
            self._resize(content, size)
            self.committed = content

    def load(self) -> None:
        """Read through a mapping."""
        handle = self.any(mapped=True)
        if handle is None or handle.mapping is None:
            return
        size = min(len(handle.mapping), len(handle.content.data))
        at = self.place(size)
        piece = handle.mapping[at : min(at + self.length(), size)] if at < size else b""
        self.note(f"load {at}+{len(piece)}")
        self.same(piece, handle.content.data[at : at + len(piece)], at)

    def store(self) -> None:
        """Write through a mapping."""
        handle = self.any(writable=True, mapped=True)
        if handle is None or handle.mapping is None:
            return
        size = min(len(handle.mapping), len(handle.content.data))
        at = self.place(size)
        piece = self.chance.randbytes(min(self.length(), max(0, size - at)))
        self.note(f"store {at}+{len(piece)}")
        handle.mapping[at : at + len(piece)] = piece
        if piece:
            self._put(handle.content, at, piece)
        if self.chance.random() < 0.3:
            self.note("msync")
            handle.mapping.flush()

    def copy(self) -> None:
        """copy_file_range within the file, from a place to another that doesn't overlap."""
        handle = self.any(writable=True)
        if handle is None or handle.append or len(handle.content.data) < 2:
            return
        data = handle.content.data
        source, length = self.place(len(data) - 1), self.length()
        length = min(length, len(data) - source, LARGEST - len(data))
        if length <= 0:
            return
        target = self.chance.choice([len(data), source + length])
        if target + length > LARGEST:
            return
        self.note(f"copy_file_range {source}+{length} to {target}")
        try:
            count = os.copy_file_range(handle.number, handle.number, length, source, target)
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS):
                return
            raise
        self._put(handle.content, target, bytes(data[source : source + count]))

    def send(self) -> None:
        """sendfile to a file elsewhere."""
        handle = self.any()
        if handle is None:
            return
        data = handle.content.data
        at, length = self.place(len(data)), self.length()
        self.note(f"sendfile {at}+{length}")
        with tempfile.TemporaryFile() as target:
            count = os.sendfile(target.fileno(), handle.number, at, length)
            self.same(os.pread(target.fileno(), count, 0), data[at : at + count], at)
            if count < min(length, len(data) - at):
                self.same(b"", data[at + count : at + count + 1], at + count)

    def sync(self) -> None:
        """fsync or fdatasync."""
        handle = self.any()
        if handle is not None:
            self.note("fsync")
            self.chance.choice([os.fsync, os.fdatasync])(handle.number)

    def look(self) -> None:
        """Size and blocks by a handle; and every byte, now and then."""
        handle = self.any()
        if handle is None:
            return
        self.note("fstat")
        status = os.fstat(handle.number)
        if status.st_size != len(handle.content.data):
            raise Difference(f"st_size is {status.st_size}, the model has {len(handle.content.data)}")
        if self.chance.random() < 0.2:
            self.compare_all(handle)

    def compare_all(self, handle: Handle) -> None:
        """Every byte of an open file."""
        data = handle.content.data
        self.note("read all")
        with mmap.mmap(-1, len(data) + 4096) as buffer:
            count = os.preadv(handle.number, [buffer], 0)
            if count < len(data):
                with memoryview(buffer)[count:] as rest:
                    count += os.preadv(handle.number, [rest], count)
            self.same(buffer[:count], data, 0)

    # --- names --------------------------------------------------------------------------------------------------------

    def rename(self) -> None:
        """Publish what waits under the temporary name."""
        if not self.temporary or self.own is None or self.own.writers:
            return
        self.note("rename")
        os.rename(self.path, self.final)
        self.committed, self.own = self.own, None

    def unlink(self) -> None:
        """The working name goes; handles go on, and nothing of them is published."""
        if self.seen() is None:
            return
        self.note("unlink")
        os.unlink(self.path)
        self.own = None
        if not self.temporary:
            self.committed = None

    def switch(self) -> None:
        """From the final to the temporary name, or back; nothing may be under way."""
        if not self.handles and self.own is None:
            self.temporary = not self.temporary
            self.note(f"now {self.path.name}")

    # --- comparing ----------------------------------------------------------------------------------------------------

    def same(self, found: bytes | bytearray, expected: bytes | bytearray, at: int) -> None:
        """Difference says where."""
        if found != expected:
            common = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), None)
            where = f"at {at + common}" if common is not None else "in length"
            raise Difference(f"{len(found)} bytes from {at} differ from the model's {len(expected)} {where}")

    def _put(self, content: Content, at: int, piece: bytes) -> None:
        if at > len(content.data):
            content.data.extend(bytes(at - len(content.data)))
        content.data[at : at + len(piece)] = piece
        content.modified = True

    def _resize(self, content: Content, size: int) -> None:
        del content.data[size:]
        content.data.extend(bytes(size - len(content.data)))
        content.modified = True


OPERATIONS: list[tuple[Callable[[File], None], int]] = [
    *[(File.open, 8), (File.close, 6), (File.duplicate, 3), (File.map, 4), (File.read, 20), (File.write, 24)],
    *[(File.truncate, 5), (File.truncate_path, 2), (File.load, 9), (File.store, 9), (File.copy, 3), (File.send, 4)],
    *[(File.sync, 2), (File.look, 6), (File.rename, 6), (File.unlink, 1), (File.switch, 2)],
]
