"""A daemon in which chosen functions raise what they are told to, while they are told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.harness.cli import hcfs
from lab.harness.origins.server import BUCKET

# A target is MODULE:NAME or MODULE:CLASS.NAME. It raises while there is a file of its name: the class that this names,
# by default one that is no Exception, as the panics of libraries written in Rust.
_PROGRAM = """
import functools, importlib, os, sys

class PanicException(BaseException):
    pass

def faulty(target, function):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        try:
            with open(os.path.join(switches, target)) as file:
                name = file.read()
        except OSError:
            return function(*args, **kwargs)
        kind = PanicException if not name else getattr(__builtins__, name)
        raise kind("a fault in " + target)
    return wrapped

switches, targets = sys.argv.pop(1), sys.argv.pop(1)
for target in filter(None, targets.split(",")):
    module, _, path = target.partition(":")
    *classes, name = path.split(".")
    place = functools.reduce(getattr, classes, importlib.import_module(module))
    setattr(place, name, faulty(target, getattr(place, name)))
exec(os.environ.pop("HCFS_TEST_PATCH", ""))
from hcfs.__main__ import main
sys.exit(main())
"""


class FaultyDaemon:
    """A mount in the foreground of a process of its own."""

    def __init__(
        self,
        top: Path,
        targets: Sequence[str] = (),
        *,
        options: str = "",
        patch: str = "",
        source: Path | None = None,
        failing: Mapping[str, str] | None = None,
    ) -> None:
        """top: a directory for what it needs. patch: Python that is run before the daemon. source: an image that is
        there; else one is made. failing: targets that raise from the beginning, with the names of classes."""
        self.dir, self.log, self.switches = top / "mnt", top / "log", top / "switches"
        self.image = source or top / "image"
        self.dir.mkdir()
        self.switches.mkdir()
        for target, kind in (failing or {}).items():
            (self.switches / target).write_text(kind)
        if source is None:
            hcfs("mkfs", self.image, "--size", "64M")
        # What the tests give namespaces as origins: the bucket of the test servers, and directories here.
        allowed = [
            f"allow_origin={prefix}" for prefix in (f"s3://{BUCKET}", f"gs://{BUCKET}", tempfile.gettempdir(), top)
        ]
        words = ["-o", ",".join(filter(None, [options, *allowed]))]
        self.command = [sys.executable, "-c", _PROGRAM, str(self.switches), ",".join(targets), "mount", str(self.image)]
        self.command += [str(self.dir), "-f", "--log", str(self.log), *words]
        self.process = subprocess.Popen(
            self.command, env={**os.environ, "HCFS_TEST_PATCH": patch}, stdin=subprocess.DEVNULL
        )
        self._wait_for(lambda: (self.dir / ".hcfs").exists(), "it serves")

    @contextmanager
    def failing(self, target: str, kind: str = "") -> Iterator[None]:
        """Let a target raise: a class of Python's own, or without a name a panic."""
        switch = self.switches / target
        fresh = self.switches / "fresh"
        fresh.write_text(kind)
        fresh.rename(switch)
        try:
            yield
        finally:
            switch.unlink()

    def told(self, target: str) -> int:
        """How many tracebacks of the target's faults the log has."""
        return self.log.read_text().count(f": a fault in {target}\n")

    def wait_for_traceback(self, target: str, before: int = 0) -> None:
        """Return when the log has one more than `before`."""
        self._wait_for(lambda: self.told(target) > before, f"the log has a traceback of {target}")

    @property
    def lives(self) -> bool:
        """Whether the process is there."""
        return self.process.poll() is None

    def umount(self) -> None:
        """Unmount; the daemon ends in order."""
        hcfs("umount", self.dir)
        assert self.process.wait(60) == 0

    def close(self) -> None:
        """Take away what is left, by force."""
        if self.lives:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        subprocess.run(["umount", "-l", str(self.dir)], check=False, capture_output=True)

    def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert self.lives, f"the daemon has ended: {self.log.read_text() if self.log.exists() else ''}"
            assert time.monotonic() < deadline, f"not within a minute: {what}"
            time.sleep(0.01)
