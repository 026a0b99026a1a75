"""Real signals to a daemon and to its guard: each is ignored, or ends the mount in order (docs/operations.md)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hcfs.host.signals import ENDING, IGNORED
from lab.harness.actors import eventually, load, pattern, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

CONTENT = pattern("signals", 200_000)
ALL_IGNORED = [*IGNORED, signal.SIGUSR2, signal.SIGHUP, signal.SIGWINCH, signal.SIGURG, signal.SIGCONT, signal.SIGCHLD]


@pytest.fixture(params=["on", "off"])
def mount(request: pytest.FixtureRequest, make_mount: Callable[..., Mount]) -> Mount:
    """With each front end."""
    mount = make_mount(options=f"data_plane={request.param},commit_interval=1h", size="64M")
    put(mount.ns() / "kept", CONTENT)
    return mount


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def serves(mount: Mount, pid: int) -> None:
    """The same process does everything as before."""
    assert mount.status()["pid"] == pid
    assert load(mount.ns() / "kept") == CONTENT
    put(mount.ns() / "new", CONTENT)
    os.unlink(mount.ns() / "new")


def name_of(number: int) -> str:
    return signal.Signals(number).name if number in list(signal.Signals) else f"SIGRTMIN+{number - signal.SIGRTMIN}"


def test_stray_signals_end_neither_daemon_nor_guard(mount: Mount) -> None:
    pid = mount.pid
    guard = parent_of(pid)
    assert guard != 1
    for number in ALL_IGNORED:
        os.kill(pid, number)
        os.kill(guard, number)
    serves(mount, pid)
    for number in ENDING:
        os.kill(guard, number)
    serves(mount, pid)
    assert parent_of(pid) == guard
    assert f"{guard} " in Path(f"/proc/{guard}/stat").read_text()
    assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZ"
    eventually(lambda: "SIGHUP: the log is opened anew" in mount.log.read_text(), "it heard the hang-up")
    mount.umount()
    eventually(lambda: not os.path.exists(f"/proc/{guard}"), "the guard has ended with its daemon")


@pytest.mark.parametrize("number", ENDING, ids=name_of)
def test_signals_that_end_a_mount_end_it_in_order(mount: Mount, number: signal.Signals) -> None:
    """What was acknowledged is durable, nothing is mounted, and the device is free."""
    mount.kill(number)
    assert not mount.mounted
    assert f"{number.name}: unmounting" in mount.log.read_text()
    hcfs("fsck", mount.source)
    mount.mount()
    assert load(mount.ns() / "kept") == CONTENT


def test_a_second_signal_cuts_no_end_short(mount: Mount) -> None:
    pid = mount.pid
    os.kill(pid, signal.SIGTERM)
    for _ in range(200):
        for number in ENDING:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                break
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), "the daemon has ended")
    assert not mount.mounted
    mount.mount()
    assert load(mount.ns() / "kept") == CONTENT


def test_a_hang_up_reopens_the_log(mount: Mount) -> None:
    """Also where nothing is logged meanwhile, so that whoever compresses the former file has all of it."""
    pid, former = mount.pid, mount.log.with_suffix(".1")
    os.rename(mount.log, former)
    os.kill(pid, signal.SIGHUP)
    eventually(lambda: mount.log.exists() and "opened anew" in mount.log.read_text(), "the log is there again")
    files = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    assert str(former) not in files
    os.kill(pid, signal.SIGUSR2)
    eventually(lambda: "Current thread" in mount.log.read_text(), "the stacks are in the new file")
    serves(mount, pid)


def test_stacks_after_the_log_was_moved_reach_no_other_file(mount: Mount) -> None:
    """faulthandler writes to a number; the log's former one may be the device's by then."""
    pid, kv = mount.pid, mount.ns()
    os.rename(mount.log, mount.log.with_suffix(".1"))
    files = []
    for number in range(30):  # something is logged, and files of /proc and of the mount come and go
        os.kill(pid, signal.SIGUSR2)
        put(kv / f"{number}", CONTENT)
        files.append(kv / f"{number}")
    assert all(load(path) == CONTENT for path in files)
    mount.umount()
    hcfs("fsck", mount.source, "--data")


def test_a_log_that_cannot_be_written_ends_nothing(make_mount: Callable[..., Mount], tmp_path: Path) -> None:
    """Its directory is gone, then a file is in the way; when it can be written again, it is."""
    mount = make_mount(size="64M")
    mount.umount()
    directory = tmp_path / "logs"
    mount.log = directory / "log"
    mount.mount()
    pid = mount.pid
    os.rename(directory, tmp_path / "gone")
    directory.write_bytes(b"")
    os.kill(pid, signal.SIGHUP)
    serves_later = mount.ns() / "kept"
    put(serves_later, CONTENT)
    serves(mount, pid)
    directory.unlink()
    directory.mkdir()
    os.kill(pid, signal.SIGHUP)
    eventually(lambda: mount.log.exists() and "opened anew" in mount.log.read_text(), "the log is there again")
    serves(mount, pid)


@pytest.fixture
def foreground(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """`foreground(*words)`: a daemon of `hcfs mount -f` that serves, in its own process group, without a log file
    unless the words say so."""
    image, directory = tmp_path / "image", tmp_path / "mnt"
    directory.mkdir()
    hcfs("mkfs", image, "--size", "64M")
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "hcfs", "mount", "-f", str(image), str(directory), *words]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True)
        started.append(process)
        eventually(lambda: (directory / ".hcfs").exists(), "it serves")
        return process

    try:
        yield start
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        subprocess.run(["umount", "-l", str(directory)], check=False, capture_output=True)


@pytest.mark.parametrize("front_end", ["on", "off"])
@pytest.mark.parametrize("number", [*ENDING, signal.SIGHUP], ids=name_of)
def test_a_mount_in_the_foreground_ends_in_order(
    foreground: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, number: signal.Signals, front_end: str
) -> None:
    """By a hang-up, too, where its log is the terminal that is gone."""
    process = foreground("-o", f"data_plane={front_end}")
    (guard,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    for stray in IGNORED:
        process.send_signal(stray)
        os.kill(guard, stray)
    for other in (*ENDING, signal.SIGHUP, signal.SIGUSR2):
        os.kill(guard, other)
    put_at = tmp_path / "mnt" / "kv"
    put_at.mkdir()
    put(put_at / "x", CONTENT)
    assert Path(f"/proc/{guard}/stat").read_text().rpartition(")")[2].split()[0] not in "XZ"
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert f"{number.name}: unmounting".encode() in said
    assert not (tmp_path / "mnt" / ".hcfs").exists()
    eventually(lambda: not os.path.exists(f"/proc/{guard}"), "the guard has lived until then, and has ended")
    assert not re.search(rb"Traceback|ERROR", said)


def test_a_hang_up_of_a_foreground_mount_with_a_log_file(
    foreground: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    process = foreground("--log", str(log))
    os.rename(log, tmp_path / "log.1")
    process.send_signal(signal.SIGHUP)
    eventually(lambda: log.exists() and "opened anew" in log.read_text(), "the log is there again")
    assert (tmp_path / "mnt" / ".hcfs" / "status.json").read_bytes()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
