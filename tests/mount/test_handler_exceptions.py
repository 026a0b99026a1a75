"""An unexpected exception in any handler is EIO for that call alone, logged once; the mount lives on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.harness.actors import errno_of, eventually, load, load_direct, pattern, put
from lab.harness.faulty import FaultyDaemon

CONTENT = pattern("exceptions", 300_000)

METHODS = [
    "lookup", "getattr", "setattr", "readlink", "mknod", "mkdir", "unlink", "rmdir", "symlink", "rename", "link",
    "open", "create", "read", "write", "flush", "release", "fsync", "opendir", "readdir", "statfs", "getxattr",
    "listxattr", "setxattr", "removexattr",
]  # fmt: skip


KINDS = ["RuntimeError", "", "KeyboardInterrupt", "SystemExit"]
"""Classes of Python's own; "" is a panic, as a library in Rust raises them."""


class Faulty:
    """A mount whose daemon raises in the methods that are switched on."""

    def __init__(self, daemon: FaultyDaemon, front_end: str) -> None:
        self.daemon = daemon
        self.dir = daemon.dir
        self.kv = daemon.dir / "kv"
        self.front_end = front_end

    def failing(self, method: str, call: Callable[[], object], kind: str) -> str:
        """The errno of a call that is made while the method raises."""
        with self.daemon.failing(target(method), kind):
            return errno_of(call)

    def logged(self, method: str) -> int:
        """How many faults of the method the log tells of."""
        return self.daemon.told(target(method))


def target(method: str) -> str:
    return f"hcfs.filesystem.filesystem:Filesystem.{method}"


@pytest.fixture(scope="module", params=["on", "off"])
def faulty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    """One for all methods: what one does to it, the next shows. With each front end."""
    top = tmp_path_factory.mktemp("faulty")
    daemon = FaultyDaemon(top, [target(method) for method in METHODS], options=f"data_plane={request.param}")
    try:
        mount = Faulty(daemon, request.param)
        mount.kv.mkdir()
        put(mount.kv / "x", CONTENT)
        os.symlink("x", mount.kv / "symlink")
        yield mount
        daemon.umount()
    finally:
        daemon.close()


def calls(kv: Path) -> dict[str, Callable[[], object]]:
    """For each method a call that reaches it, whatever the kernel has cached."""

    def write() -> None:
        fd = os.open(kv / "written", os.O_WRONLY | os.O_CREAT)
        try:
            os.write(fd, b"x")
        finally:
            os.close(fd)

    def touched_by_handle(call: Callable[[int], object]) -> None:
        fd = os.open(kv / "x", os.O_RDONLY)
        try:
            call(fd)
        finally:
            os.close(fd)

    return {
        "lookup": lambda: os.stat(kv / "never asked before"),
        "setattr": lambda: os.chmod(kv / "x", 0o600),
        "readlink": lambda: os.readlink(kv / "symlink"),
        "mknod": lambda: os.mknod(kv / "node"),
        "mkdir": lambda: os.mkdir(kv / "directory"),
        "unlink": lambda: os.unlink(kv / "x"),
        "rmdir": lambda: (os.mkdir(kv / "empty"), os.rmdir(kv / "empty")),
        "symlink": lambda: os.symlink("x", kv / "another symlink"),
        "rename": lambda: os.rename(kv / "x", kv / "y"),
        "link": lambda: os.link(kv / "x", kv / "z"),
        "open": lambda: os.close(os.open(kv / "x", os.O_RDONLY)),
        "create": lambda: os.close(os.open(kv / "created", os.O_WRONLY | os.O_CREAT)),
        "read": lambda: load_direct(kv / "x"),
        "write": write,
        "flush": write,
        "fsync": lambda: touched_by_handle(os.fsync),
        "opendir": lambda: os.listdir(kv),
        "readdir": lambda: os.listdir(kv),
        "statfs": lambda: os.statvfs(kv),
        "getxattr": lambda: os.getxattr(kv / "x", "user.hcfs.state"),
        "listxattr": lambda: os.listxattr(kv / "x"),
        "setxattr": lambda: os.setxattr(kv / "x", "user.a", b"1"),
        "removexattr": lambda: os.removexattr(kv / "x", "user.a"),
    }


@pytest.mark.parametrize("method", [method for method in METHODS if method not in ("release", "getattr")])
def test_eio_once_and_everything_else_is_served(faulty: Faulty, method: str) -> None:
    """The call gets EIO, the log names operation and path, and the next calls of every kind work. Whatever its class
    is: what is no Exception, too."""
    kv = faulty.kv
    for kind in KINDS:
        before = faulty.logged(method)
        assert faulty.failing(method, calls(kv)[method], kind) == "EIO"
        assert faulty.logged(method) - before == 1
        tidy(kv)
    told = [line for line in faulty.daemon.log.read_text().splitlines() if method in line and " ERROR " in line]
    assert told
    assert any("kv" in line for line in told) or method == "statfs"
    served(kv)


@pytest.mark.parametrize("method", ["release", "getattr"])
def test_where_no_caller_hears_of_it(faulty: Faulty, method: str) -> None:
    """RELEASE has no answer, and GETATTR may be spared by what the kernel knows: the mount lives on."""
    for kind in KINDS:
        before = faulty.logged(method)
        with faulty.daemon.failing(target(method), kind):
            errno_of(load, faulty.kv / "x")
            errno_of(os.stat, faulty.kv)
            eventually(lambda: method == "getattr" or faulty.logged(method) > before, "it was raised")  # noqa: B023  # within the loop
        served(faulty.kv)


def served(kv: Path) -> None:
    """Everything still works."""
    assert load_direct(kv / "x") == CONTENT
    put(kv / "new", CONTENT)
    assert load(kv / "new") == CONTENT
    os.setxattr(kv / "new", "user.a", b"1")
    os.rename(kv / "new", kv / "newer")
    os.mkdir(kv / "d")
    assert {"x", "newer", "d"} <= set(os.listdir(kv))
    os.rmdir(kv / "d")
    os.unlink(kv / "newer")
    assert errno_of(os.stat, kv / "newer") == "ENOENT"
    assert os.statvfs(kv).f_bsize == 4096
    tidy(kv)


def tidy(kv: Path) -> None:
    """Nothing is left of calls that failed half-way."""
    for name in ("node", "directory", "another symlink", "created", "written", "z", "empty"):
        path = kv / name
        if os.path.lexists(path):
            os.rmdir(path) if path.is_dir() and not path.is_symlink() else os.unlink(path)
