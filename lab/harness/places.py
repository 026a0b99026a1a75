"""What tests and tools make in the system, taken down however they end.

A *place* is a directory that belongs to one process. It is written down before it is made, and whatever is made in it
is found by the kernel's own tables: mounts beneath it, loop devices whose file is in it, daemons that serve a directory
of it, and processes that were started by its owner, by a mark in their environment. So there is no moment at which
something exists and nobody knows.

Who takes it down: the owner at its end; else a watcher, a small process that outlives it and sees it gone (kill -9, a
second Ctrl-C); else the next run, if the watcher was killed too. Nobody touches what a living process owns.

The standard library alone: tools/demo has nothing else, and the watcher is this file.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import itertools
import json
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

MARK = "HCFS_PLACES_OWNER"
"""Environment variable of the processes that an owner starts."""

PATIENCE_S = 20
"""For one thing to go; what stays longer is left for the next run."""

_UMOUNT = 1 | 2 | 8  # MNT_FORCE, MNT_DETACH, UMOUNT_NOFOLLOW
_numbers = itertools.count()
_owner = ""


def register() -> Path:
    """The directory of entries, one a place. RuntimeError when another user could have written them.

    One for each pid namespace, whose processes alone can be told to be alive or dead."""
    user = os.geteuid()
    found = Path("/dev/shm" if user else "/run", f"hcfs-places-{user}-{os.stat('/proc/self/ns/pid').st_ino}")
    found.mkdir(mode=0o700, exist_ok=True)
    status = found.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != user or status.st_mode & 0o022:
        raise RuntimeError(f"{found} isn't a directory that user {user} alone writes: have it removed")
    return found


def identity(pid: int) -> str:
    """What tells a process from those that have its number later; empty when there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else f"{pid}-{fields[19]}"


def begin() -> str:
    """Make this process an owner, and clear what dead ones have left. Its identity; it may be called again."""
    global _owner
    if _owner.partition("-")[0] != str(os.getpid()):
        sweep()
        _owner = identity(os.getpid())
        os.environ[MARK] = _owner
        _start_watcher(_owner)
        atexit.register(end)
    return _owner


def end() -> None:
    """Take down all that this process owns, with the processes that it started. No signal comes between.

    For the end of a process: a parent that has forked is no owner of what is its child's, nor the other way round."""
    if _owner.partition("-")[0] == str(os.getpid()):
        with quiet():
            _clear(_owner)
            sweep()


@contextmanager
def quiet() -> Iterator[None]:
    """The signals that end a program are ignored: it is ending."""
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with suppress(ValueError):  # another thread than the main one gets no signals
            before[number] = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Place:
    """A directory that this process owns, with everything that is made in it."""

    def __init__(self, path: Path, *, keep: bool = False) -> None:
        """Of a directory that is there or will be made. keep: its files stay when what is on them is taken down."""
        self.path = Path(os.path.realpath(path))
        self._entry = register() / f"{begin()}-{next(_numbers)}"
        self._write(keep)

    @classmethod
    def make(cls, prefix: str, parent: Path | None = None) -> Place:
        """A new directory, as tempfile makes them: for this user alone."""
        within = Path(parent or tempfile.gettempdir())
        place = cls(within / f"{prefix}{os.getpid()}-{os.urandom(6).hex()}")
        place.path.mkdir(mode=0o700)
        return place

    def keep(self) -> None:
        """Its files are of use to somebody: only mounts, loop devices and daemons go."""
        self._write(True)

    def close(self) -> None:
        """Take down what is in it. What can't go yet stays written down."""
        if take_down(self.path, remove=not self._keep):
            self._entry.unlink(missing_ok=True)

    def _write(self, keep: bool) -> None:
        self._keep = keep
        new = self._entry.with_name(f".{self._entry.name}")
        new.write_text(json.dumps({"place": str(self.path), "keep": keep}))
        new.rename(self._entry)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def sweep() -> None:
    """Take down what owners that have ended have left."""
    with _alone():
        for owner in sorted({entry.name.rpartition("-")[0] for entry in register().iterdir()} - {"lock"}):
            if owner[:1].isdigit() and identity(int(owner.partition("-")[0])) != owner:
                _clear(owner)


def _clear(owner: str) -> None:
    _kill(lambda process: _is_marked(process, owner))
    for entry in register().glob(f".{owner}-*"):
        entry.unlink(missing_ok=True)
    for entry in sorted(register().glob(f"{owner}-*")):
        try:
            found = json.loads(entry.read_text())
        except OSError:  # somebody else has done it
            continue
        if take_down(Path(found["place"]), remove=not found["keep"]):
            entry.unlink(missing_ok=True)


def take_down(place: Path, *, remove: bool) -> bool:
    """Daemons, mounts and loop devices of a directory, and with `remove` the directory. False when something stays."""
    deadline = time.monotonic() + PATIENCE_S
    if mounts_in(place):
        _kill(lambda process: _serves(process, place))
    while mounts := mounts_in(place):
        for mount in reversed(mounts):
            _unmount(mount)
        if time.monotonic() > deadline:
            return False
    for device in loops_in(place):
        subprocess.run(["losetup", "-d", device], check=False, capture_output=True)
    while loops_in(place):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    if remove:
        with suppress(OSError):  # a control group goes so, and not otherwise
            place.rmdir()
        shutil.rmtree(place, ignore_errors=True)
    return not remove or not place.exists()


def mounts_in(place: Path) -> list[str]:
    """Where something is mounted at or beneath a directory, in the order of mounting."""
    lines = Path("/proc/self/mountinfo").read_bytes().split(b"\n")  # names may hold what else ends a line for str
    points = [os.fsdecode(_unescaped(line.split(b" ")[4])) for line in lines if line]
    return [point for point in points if _is_in(point, place)]


def _unescaped(word: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), word)


def loops_in(place: Path) -> list[str]:
    """Loop devices whose file is in a directory, removed files included."""
    found = []
    for entry in Path("/sys/block").glob("loop*"):
        with suppress(OSError):
            if _is_in(os.fsdecode((entry / "loop/backing_file").read_bytes()).removesuffix("\n"), place):
                found.append(f"/dev/{entry.name}")
    return found


def _is_in(path: str, place: Path) -> bool:
    return path == str(place) or path.startswith(f"{place}/")


def _unmount(point: str) -> None:
    if os.geteuid() == 0:
        ctypes.CDLL(None).umount2(os.fsencode(point), _UMOUNT)
    else:
        subprocess.run(["fusermount3", "-u", "-z", point], check=False, capture_output=True)


def _serves(process: Path, place: Path) -> bool:
    """Whether it is a daemon for a directory of the place: named in its command line, and with /dev/fuse open."""
    words = (process / "cmdline").read_bytes().split(b"\0")
    if not any(_is_in(os.fsdecode(word), place) for word in words):
        return False
    for descriptor in (process / "fd").iterdir():
        with suppress(OSError):
            if os.readlink(descriptor) == "/dev/fuse":
                return True
    return False


def _is_marked(process: Path, owner: str) -> bool:
    return f"{MARK}={owner}".encode() in (process / "environ").read_bytes().split(b"\0")


def _kill(which: Callable[[Path], bool]) -> None:
    """SIGKILL to those processes, again while there are some: one may have started another meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                with suppress(OSError):
                    if which(Path("/proc", name)):
                        found.append(int(name))
        if not found:
            return
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


@contextmanager
def _alone() -> Iterator[None]:
    """One sweeps at a time, so that whoever comes second finds it done. One that hangs holds nobody up for good."""
    handle = os.open(register() / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + 3 * PATIENCE_S
        while time.monotonic() < deadline:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def _start_watcher(owner: str) -> None:
    """Returns when it watches. It is no child of this process, and has nothing of it: no mark, no files, no signals."""
    words = [sys.executable, "-I", "-S", __file__, owner]
    env = {"PATH": os.environ.get("PATH", os.defpath)}
    subprocess.run(words, cwd="/", env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)


def _watch(owner: str) -> int:
    """What the watcher does: 0 when the owner has gone and its places with it."""
    handle = os.pidfd_open(int(owner.partition("-")[0]))
    if os.fork():
        return 0
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    if identity(int(owner.partition("-")[0])) == owner:
        select.select([handle], [], [])
    with _alone():
        _clear(owner)
    return 0


if __name__ == "__main__":
    sys.exit(_watch(sys.argv[1]))
