"""Other processes that make system calls on command, and the calls that Python's os module lacks.

A test of "what another process sees" needs that other process, alive, with its own handles, mappings and locks, and
needs to kill it at a chosen moment. `Actor` is such a process: its methods are calls made there, and an OSError raised
there is raised here.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
AT_FDCWD = -100
BLOCK = 4096

StrPath = str | bytes | os.PathLike[str]

_libc = ctypes.CDLL(None, use_errno=True)


def pattern(seed: int | str, size: int) -> bytes:
    """`size` bytes that no other seed gives, so that a wrong byte also tells whose it is."""
    return random.Random(f"hcfs {seed}").randbytes(size)


def digest(data: bytes) -> str:
    """A short name for contents: what a failed comparison of megabytes should print."""
    return f"{len(data)} bytes {hashlib.blake2b(data, digest_size=8).hexdigest()}"


def eventually(condition: Callable[[], Any], what: str, timeout: float = 20.0) -> Any:
    """Poll until the condition is true and return its value. For what follows close() by itself: RELEASE is later."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what}")
        time.sleep(0.005)


def errno_of(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The symbolic errno that the call fails with, or "ok"."""
    try:
        call(*args, **kwargs)
    except OSError as error:
        # One number with two names, and errorcode knows it by the other.
        return "EOPNOTSUPP" if error.errno == errno.EOPNOTSUPP else errno.errorcode[error.errno or 0]
    return "ok"


def store(path: StrPath, data: bytes, flags: int = 0, mode: int = 0o644) -> int:
    """Write a whole object as clients do (create, truncate, write, close) and return the inode number it had at the
    end.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flags, mode)
    try:
        write_all(fd, data)
        return os.fstat(fd).st_ino
    finally:
        os.close(fd)


def put(path: StrPath, data: bytes, mode: int = 0o644) -> os.stat_result:
    """Store an object as publishers do, by a temporary name and a rename: committed for everybody when this returns."""
    tmp = os.fsencode(path) + b".tmp"
    store(tmp, data, mode=mode)
    os.rename(tmp, path)
    return os.stat(path)


def write_all(fd: int, data: bytes) -> None:
    """write() until everything is written."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def load(path: StrPath) -> bytes:
    """The whole content, in one open."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_all(fd)
    finally:
        os.close(fd)


def read_all(fd: int) -> bytes:
    """read() until the end of the file."""
    parts = []
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def drop_pages(path: StrPath) -> None:
    """Make the kernel forget the file's clean pages, so that the next read is one of the medium."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def pread_direct(fd: int, length: int, offset: int, skew: int = 0) -> bytes:
    """One pread of `length` bytes into a buffer `skew` bytes past a page boundary; the file is opened O_DIRECT."""
    memory = mmap.mmap(-1, skew + length + mmap.PAGESIZE)
    with memory, memoryview(memory)[skew : skew + length] as part:
        count = os.preadv(fd, [part], offset)
        return bytes(part[:count])


def load_direct(path: StrPath, step: int = 1 << 20, skew: int = 0) -> bytes:
    """The whole content through O_DIRECT: no page of the kernel's cache is looked at."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        parts: list[bytes] = []
        while part := pread_direct(fd, step, sum(map(len, parts)), skew):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def pwrite_direct(fd: int, data: bytes, offset: int, skew: int = 0) -> int:
    """One pwrite from a buffer `skew` bytes past a page boundary; the file is opened O_DIRECT."""
    memory = mmap.mmap(-1, skew + len(data) + mmap.PAGESIZE)
    with memory, memoryview(memory)[skew : skew + len(data)] as part:
        part[:] = data
        return os.pwritev(fd, [part], offset)


def renameat2(source: StrPath, target: StrPath, flags: int) -> None:
    """rename with RENAME_NOREPLACE or RENAME_EXCHANGE."""
    if _libc.renameat2(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), ctypes.c_uint(flags)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), os.fsdecode(source), None, os.fsdecode(target))


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    """fallocate(2) itself: glibc's posix_fallocate writes zeros where the filesystem refuses."""
    if _libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class Actor:
    """Another process; every attribute is a call made there: a function of this module, of fcntl, or of os.

    Leaving the context kills it. Calls return what they return there; OSError comes back as itself. `begin` and
    `result` part a call that waits (a lock, a write under back-pressure) from its answer.
    """

    def __init__(self) -> None:
        command = [sys.executable, "-S", "-E", "-s", str(Path(__file__).resolve())]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.begin(name, *args, **kwargs)
            return self.result()

        return call

    def begin(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Start a call there; its answer is fetched with `result`."""
        assert self.process.stdin is not None
        pickle.dump((name, args, kwargs), self.process.stdin)
        self.process.stdin.flush()

    def result(self) -> Any:
        """Wait for the answer of the call begun last. EOFError when the process died of it."""
        assert self.process.stdout is not None
        good, value = pickle.load(self.process.stdout)
        if good:
            return value
        raise value

    def kill(self, number: int = signal.SIGKILL) -> int:
        """End the process by a signal and return its exit status (minus the signal's number); its handles are closed
        by then.
        """
        self.process.send_signal(number)
        return self.process.wait(30)

    def leave(self, status: int = 0) -> int:
        """End the process by _exit, with all its handles still open."""
        self.begin("_exit", status)
        return self.process.wait(30)

    def stop(self) -> None:
        """SIGSTOP: alive, but making no progress."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Actor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(30)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


# What follows runs in the actor's process.

_maps: dict[int, mmap.mmap] = {}


def map_file(fd: int, length: int, write: bool = False) -> int:
    """Map the file, shared, and return the mapping's number."""
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if write else 0)
    number = len(_maps)
    _maps[number] = mmap.mmap(fd, length, mmap.MAP_SHARED, protection)
    return number


def map_read(number: int, start: int = 0, stop: int | None = None) -> bytes:
    """Bytes of a mapping; SIGBUS where the file has none."""
    return _maps[number][start:stop]


def map_write(number: int, start: int, data: bytes) -> None:
    """Store bytes into a mapping."""
    _maps[number][start : start + len(data)] = data


def unmap(number: int) -> None:
    """munmap."""
    _maps[number].close()


def in_thread(name: str, *args: Any) -> Any:
    """Make the call in a thread of its own that has ended when this returns."""
    answers: list[tuple[bool, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(_perform(name, args, {})))
    thread.start()
    thread.join()
    good, value = answers[0]
    if good:
        return value
    raise value


def child_writes(fd: int, data: bytes, number: int = 0) -> int:
    """Fork a child that writes to the inherited handle and exits, or dies of the signal; returns its wait status."""
    child = os.fork()
    if child == 0:
        write_all(fd, data)
        if number:
            os.kill(os.getpid(), number)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def orphan_holds(fd: int, release_fifo: str) -> int:
    """Fork a child that keeps the inherited handle open until somebody opens the fifo; returns its pid."""
    child = os.fork()
    if child == 0:
        os.close(0)
        os.close(1)
        with open(release_fifo, "rb") as fifo:
            fifo.read()
        os._exit(0)
    return child


def become(uid: int, gid: int, directory: StrPath) -> None:
    """Another user, whose working directory is one that it may not be able to walk to."""
    os.chdir(directory)
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def restore_default(number: int) -> None:
    """Let the signal end the process, where Python handles it."""
    signal.signal(number, signal.SIG_DFL)


def threads_write(paths: list[str], size: int) -> None:
    """Write to all paths at once, a thread each, until every file has `size` bytes; the handles stay open.

    The file at index i gets the byte i % 256.
    """

    def write(index: int, path: str) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        for start in range(0, size, 1 << 16):
            write_all(fd, bytes([index % 256]) * min(1 << 16, size - start))

    threads = [threading.Thread(target=write, args=item) for item in enumerate(paths)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _perform(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    function = globals().get(name) or getattr(fcntl, name, None) or getattr(os, name)
    try:
        return True, function(*args, **kwargs)
    except OSError as error:
        return False, error


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    while True:
        try:
            name, args, kwargs = pickle.load(requests)
        except EOFError:
            return
        pickle.dump(_perform(name, args, kwargs), answers)
        answers.flush()


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer)
