"""One loop device, and what is put on it in turn: ext4, hcfs, or nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.bench.daemon import Daemon
from lab.bench.error import BenchError
from lab.bench.levers import Lever
from lab.harness.places import Place
from lab.harness.programs import environment

HCFS = [sys.executable, "-m", "hcfs"]
PLANES = {"auto": "", "plain": "data_plane=off", "threads": "data_plane=on"}
"""What a choice of data plane is called on the command line, and as a mount option."""

PATIENCE_S = 600
"""for one command"""

MIB = 1 << 20
UNITS = {"K": 1 << 10, "M": MIB, "G": 1 << 30}


def size_in_bytes(text: str) -> int:
    """`512K`, `2G`, or plain bytes. ValueError for anything else."""
    unit = UNITS.get(text[-1:].upper(), 1)
    return int(text if unit == 1 else text[:-1]) * unit


def run(*words: object, feed: str | None = None, temporary: Path | None = None) -> str:
    """A command's output. BenchError with what it said when it fails. temporary: where its temporary files go.

    It has a session of its own: a Ctrl-C ends what takes things down here, and not half of what is being set up."""
    command = [str(word) for word in words]
    shown = " ".join(command)[:500]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            input=feed,
            env=environment() | ({"TMPDIR": str(temporary)} if temporary else {}),
            start_new_session=True,
            timeout=PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"{shown} took longer than {PATIENCE_S} s: does the mount hang?") from None
    except FileNotFoundError:
        raise BenchError(f"{command[0]} isn't installed: run tools/setup --with-bench") from None
    if done.returncode:
        raise BenchError(f"{shown} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


@dataclass(frozen=True)
class Mounted:
    """A filesystem that serves."""

    directory: Path
    """where objects may be put"""
    daemon: Daemon | None = None
    """of hcfs; None where the kernel is the filesystem"""


class Backing:
    """A loop device and a scratch directory, both in places of this process: nothing is left of them when the stack
    closes, nor when the program ends otherwise."""

    def __init__(self, stack: ExitStack, *, memory: bool, size: int, parent: Path | None = None) -> None:
        """memory: whether the device's file lies in memory or on the disk under `parent` (or the temporary directory).
        size: bytes."""
        self.scratch = stack.enter_context(Place.make("hcfs-bench-"))
        within = Path("/dev/shm") if memory else parent or self.scratch
        holder = stack.enter_context(Place.make("hcfs-bench-", within))
        self.memory = memory
        self.size = size
        self.image = holder / "image"
        # Written once: the first touch of each page, or block of the filesystem below, costs more than later ones.
        run("dd", "if=/dev/zero", f"of={self.image}", "bs=1M", f"count={size >> 20}", "conv=fsync", "status=none")
        self.device = run("losetup", "--direct-io=on", "-f", "--show", self.image).strip()
        stack.callback(run, "losetup", "-d", self.device)

    def settle(self) -> None:
        """Bring what other candidates left to the device, so that the next one doesn't pay for it."""
        run("sync", "--file-system", self.image)
        run("blockdev", "--flushbufs", self.device)

    @contextmanager
    def ext4(self, *, remount: bool = False) -> Iterator[Mounted]:
        """A fresh ext4, or with `remount` the one that is there."""
        directory = self.scratch / "ext4"
        directory.mkdir(exist_ok=True)
        if not remount:
            self.settle()
            # Nothing is discarded, which would take the file's pages away, and nothing is left for later.
            later = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"
            run("mkfs.ext4", "-q", "-F", "-E", later, self.device)
        try:
            run("mount", self.device, directory)
            (directory / "kv").mkdir(exist_ok=True)
            yield Mounted(directory / "kv")
        finally:
            unmount(directory)

    @contextmanager
    def hcfs(self, options: str = "", lever: Lever | None = None, *, remount: bool = False) -> Iterator[Mounted]:
        """A fresh hcfs with these mount options, or with `remount` the one that is there."""
        directory = self.scratch / "hcfs"
        directory.mkdir(exist_ok=True)
        if not remount:
            self.settle()
            self.format()
        try:
            with lever.mounting() if lever else nullcontext():
                self.mount(directory, options)
            if lever:
                lever.mounted(directory)
            (directory / "kv").mkdir(exist_ok=True)
            yield Mounted(directory / "kv", Daemon(directory))
        finally:
            unmount_hcfs(directory)

    def format(self) -> None:
        """Make the device an empty hcfs store."""
        run(*HCFS, "mkfs", self.device, "--force", "--no-discard")

    def mount(self, directory: Path, options: str = "") -> None:
        """Mount the store at the directory; whoever calls unmounts it."""
        words = ["-o", options] if options else []
        run(*HCFS, "mount", self.device, directory, "--log", self.scratch / "hcfs.log", *words)


def is_mounted(directory: Path) -> bool:
    """Whether the kernel has a mount there, dead or alive."""
    return any(line.split()[4] == str(directory) for line in Path("/proc/self/mountinfo").read_text().splitlines())


def unmount(directory: Path) -> None:
    """Of whatever kind; lazily when it is busy, so that nothing is left behind for good."""
    if is_mounted(directory) and subprocess.run(["umount", str(directory)], capture_output=True).returncode:
        run("umount", "--lazy", directory)


def unmount_hcfs(directory: Path) -> None:
    """Returns when the daemon has ended; by force when it doesn't want to."""
    if not is_mounted(directory):
        return
    try:
        run(*HCFS, "umount", directory)
    except BenchError:
        run(*HCFS, "umount", directory, "--lazy")
        raise


def hcfs_candidates(plane: str, options: str) -> dict[str, str]:
    """Names and mount options of the hcfs to be measured. plane: auto, plain, threads or both."""
    planes: Sequence[str] = ("plain", "threads") if plane == "both" else (plane,)
    return {
        "hcfs" if each == "auto" else f"hcfs {each}": ",".join(filter(None, (PLANES[each], options))) for each in planes
    }


def configuration(directory: Path) -> dict[str, Any]:
    """Options in force of the mount in which the directory is."""
    found: dict[str, Any] = json.loads((directory.parent / ".hcfs/config.json").read_text())
    return found
