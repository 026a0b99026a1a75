"""A mounted hcfs: its daemon's life, status and log."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.harness.cli import hcfs

_LOUD = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b|^Traceback ")


class Mount:
    """One source mounted at one directory, mounted anew as often as the test likes."""

    def __init__(self, source: Path, directory: Path, *, options: str = "", allow_warnings: Sequence[str] = ()) -> None:
        self.source = source
        self.dir = directory
        self.log = directory.with_name(directory.name + ".log")
        self.options = options
        self.allow_warnings = tuple(allow_warnings)
        self.dir.mkdir(parents=True, exist_ok=True)

    def mount(self, options: str | None = None, *args: str) -> Mount:
        """Mount (again); `options` stays in force for later calls, `args` are further words for this call."""
        if options is not None:
            self.options = options
        words = ["-o", self.options] if self.options else []
        hcfs("mount", self.source, self.dir, "--log", self.log, *words, *args)
        return self

    def umount(self, *args: str) -> None:
        """`hcfs umount`: returns when the daemon has ended and the source is free."""
        hcfs("umount", self.dir, *args)

    @property
    def mounted(self) -> bool:
        """Whether the kernel has a mount at the directory, dead or alive."""
        target = str(self.dir).replace(" ", "\\040")
        with open("/proc/self/mountinfo", newline="\n", errors="surrogateescape") as mounts:
            return any(line.split(" ")[4] == target for line in mounts)

    @property
    def pid(self) -> int:
        """The daemon: the process that was started for this directory and holds /dev/fuse."""
        found = self._daemon()
        if found is None:
            raise AssertionError(f"no daemon serves {self.dir}; its log ends with {self.log_lines()[-5:]}")
        return found

    def _daemon(self) -> int | None:
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            try:
                command = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                if os.fsencode(self.dir) not in command:
                    continue
                descriptors = os.listdir(f"/proc/{entry}/fd")
            except OSError:
                continue
            if any(_leads_to_fuse(f"/proc/{entry}/fd/{fd}") for fd in descriptors):
                return int(entry)
        return None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send the daemon a signal and wait until it has ended; the dead mount stays where it is."""
        pid = self.pid
        os.kill(pid, number)
        deadline = time.monotonic() + 30
        while alive(pid):
            assert time.monotonic() < deadline, f"daemon {pid} outlived signal {number} by 30 s"
            time.sleep(0.01)

    def status(self) -> dict[str, Any]:
        """The content of .hcfs/status.json now."""
        status: dict[str, Any] = json.loads((self.dir / ".hcfs" / "status.json").read_bytes())
        return status

    def ns(self, name: str = "kv") -> Path:
        """The directory of a namespace, made if it is absent."""
        path = self.dir / name
        path.mkdir(exist_ok=True)
        return path

    def log_lines(self) -> list[str]:
        """The daemon's log so far."""
        return self.log.read_text(errors="replace").splitlines() if self.log.exists() else []

    def unexpected_lines(self) -> list[str]:
        """Lines of the log at WARNING and above, or tracebacks, that the test didn't allow."""
        loud = (line for line in self.log_lines() if _LOUD.search(line))
        return [line for line in loud if not any(re.search(allowed, line) for allowed in self.allow_warnings)]

    def close(self) -> None:
        """Unmount whatever is there, by force when the proper way fails, and then report that it failed."""
        problem = ""
        if self.mounted:
            result = hcfs("umount", self.dir, check=False)
            if result.returncode != 0 or self.mounted:
                problem = f"hcfs umount at teardown: exit code {result.returncode}, {result.stderr.strip()}"
                daemon = self._daemon()
                subprocess.run(["umount", "-l", str(self.dir)], check=False, capture_output=True)
                if daemon is not None:
                    os.kill(daemon, signal.SIGKILL)
        unexpected = self.unexpected_lines()
        assert not problem, problem
        assert not unexpected, f"the daemon logged what the test didn't expect: {unexpected[:10]}"


def _leads_to_fuse(descriptor: str) -> bool:
    try:
        return os.readlink(descriptor) == "/dev/fuse"
    except OSError:  # closed meanwhile, as the daemon does with files of /proc
        return False


def alive(pid: int) -> bool:
    """Whether any thread of the process still runs: the last one closes /dev/fuse."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        with open(f"/proc/{pid}/stat") as stat:
            return len(threads) > 1 or stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
