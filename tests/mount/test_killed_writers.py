"""A writer killed by a signal publishes nothing; one that exits by itself has closed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.harness.actors import Actor, errno_of, eventually, load, pattern, put
from lab.harness.mounts import Mount

CONTENT = pattern("killed", 400_000)
DEADLY = [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV, signal.SIGINT, signal.SIGHUP]


def nothing_staged(mount: Mount) -> dict[str, int]:
    """Wait until no version is left and return the status then; the space must add up."""
    status = eventually(
        lambda: (now := mount.status())["staged_objects"] == 0 and now["staged_bytes"] == 0 and now, "nothing staged"
    )
    parts = ("used_bytes", "free_bytes", "staged_bytes", "pending_bytes", "quarantined_bytes")
    assert sum(status[part] for part in parts) == status["capacity_bytes"]
    return status


@pytest.mark.parametrize("number", DEADLY)
def test_killed_by_a_signal(make_mount: Callable[..., Mount], number: int) -> None:
    """Open, written, even flushed by a closed duplicate: the name stays absent or old, and the space is free again."""
    mount = make_mount()
    kv = mount.ns()
    put(kv / "old", b"old bytes")
    before = nothing_staged(mount)
    with Actor() as writer:
        if number == signal.SIGINT:
            writer.restore_default(number)
        for name in ("new", "old", "k.tmp"):
            fd = writer.open(kv / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            writer.write_all(fd, CONTENT)
            writer.close(writer.dup(fd))
        assert mount.status()["staged_objects"] == 3
        assert mount.status()["staged_bytes"] >= 3 * len(CONTENT)
        assert writer.kill(number) == -number
        after = nothing_staged(mount)
    assert os.listdir(kv) == ["old"]
    assert load(kv / "old") == b"old bytes"
    assert errno_of(os.stat, kv / "new") == errno_of(os.stat, kv / "k.tmp") == "ENOENT"
    assert after["used_bytes"] == before["used_bytes"]
    assert after["objects"] == before["objects"]
    assert mount.status()["counters"]["abandoned"] == 3


@pytest.mark.parametrize("status", [0, 3])
def test_exit_without_close_is_a_close(kv: Path, status: int) -> None:
    """_exit, whatever its status, closes: the object is published."""
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_CREAT)
        writer.write_all(fd, CONTENT)
        assert writer.leave(status) == status
    eventually(lambda: errno_of(os.stat, kv / "x") == "ok", "published at exit")
    assert load(kv / "x") == CONTENT


def test_opened_by_a_thread_that_ended_long_before(kv: Path) -> None:
    """The process is what is asked about, not the thread: killed means abandoned, exited means published."""
    for name, ends in (("killed", Actor.kill), ("exited", Actor.leave)):
        with Actor() as writer:
            fd = writer.in_thread("open", kv / name, os.O_WRONLY | os.O_CREAT)
            writer.in_thread("write_all", fd, CONTENT)
            ends(writer)
    eventually(lambda: os.listdir(kv) == ["exited"], "only the exited writer's object")
    assert load(kv / "exited") == CONTENT
    assert errno_of(os.stat, kv / "killed") == "ENOENT"


def test_killed_while_worker_threads_write(kv: Path) -> None:
    """A process dies while eight of its threads write: none of its eight objects appears."""
    with Actor() as writer:
        writer.begin("threads_write", [os.fspath(kv / f"{number}.data") for number in range(8)], 256 << 20)
        eventually(lambda: len(staged_names(kv)) == 8, "all eight are being written")
        assert writer.kill() == -signal.SIGKILL
    eventually(lambda: staged_names(kv) == [], "all abandoned")
    assert os.listdir(kv) == []


def test_closed_before_the_kill(kv: Path) -> None:
    """What was closed was closed: published, or waiting under its staging name for somebody's rename."""
    with Actor() as writer:
        writer.store(kv / "x", CONTENT)
        writer.store(kv / "k.tmp", CONTENT)
        writer.kill()
    eventually(lambda: errno_of(os.stat, kv / "x") == "ok", "published")
    assert load(kv / "x") == CONTENT
    os.rename(kv / "k.tmp", kv / "k")
    assert load(kv / "k") == CONTENT


def test_a_killed_child_of_a_living_writer(kv: Path) -> None:
    """The version is its creator's: a child that inherited the handle, wrote and was killed doesn't abandon it."""
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_CREAT)
        writer.write(fd, b"parent, ")
        assert writer.child_writes(fd, b"killed child, ", signal.SIGKILL) == signal.SIGKILL
        assert writer.child_writes(fd, b"child, ") == 0
        assert errno_of(os.stat, kv / "x") == "ENOENT"
        writer.write(fd, b"parent")
        writer.close(fd)
    eventually(lambda: errno_of(os.stat, kv / "x") == "ok", "published")
    assert load(kv / "x") == b"parent, killed child, child, parent"


def test_a_killed_creator_with_a_living_child(make_mount: Callable[..., Mount], tmp_path: Path) -> None:
    """The child still holds the handle when the creator is killed: abandoned at once, and the child's close publishes
    nothing.
    """
    mount = make_mount()
    kv, free = mount.ns(), mount.status()["free_bytes"]
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_CREAT)
        writer.write_all(fd, CONTENT)
        child = writer.orphan_holds(fd, os.fspath(fifo))
        writer.kill()
    try:
        status = nothing_staged(mount)
        assert status["counters"]["abandoned"] == 1
        assert status["free_bytes"] == free
    finally:
        with fifo.open("wb"):
            pass
    eventually(lambda: not Path(f"/proc/{child}").exists(), "the child is gone")
    assert os.listdir(kv) == []
    assert errno_of(os.stat, kv / "x") == "ENOENT"


def test_a_child_outlives_a_creator_that_exits(kv: Path, tmp_path: Path) -> None:
    """The creator closed by exiting; the last holder's close publishes."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_CREAT)
        writer.write_all(fd, CONTENT)
        writer.orphan_holds(fd, os.fspath(fifo))
        writer.leave()
    assert errno_of(os.stat, kv / "x") == "ENOENT"
    with fifo.open("wb"):
        pass
    eventually(lambda: errno_of(os.stat, kv / "x") == "ok", "published by the last close")
    assert load(kv / "x") == CONTENT


def test_a_shell_that_kills_itself(kv: Path) -> None:
    """The shell created the version by its redirection, its child wrote through it, and the shell dies."""
    done = subprocess.run(["sh", "-c", "exec 3>out; echo begun >&3; cat /etc/hostname >&3; kill -9 $$"], cwd=kv)
    assert done.returncode == -signal.SIGKILL
    eventually(lambda: staged_names(kv) == [], "abandoned")
    assert errno_of(os.stat, kv / "out") == "ENOENT"


def test_a_hundred_killed_writers(make_mount: Callable[..., Mount]) -> None:
    """A hundred times 1 MiB under temporary names on 64 MiB: without the space of the dead ones the last would find
    none.
    """
    mount = make_mount(size="64M")
    kv = mount.ns()
    before = nothing_staged(mount)
    content = pattern("hundred", 1 << 20)
    for number in range(100):
        with Actor() as writer:
            fd = writer.open(kv / f"{number}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            writer.write_all(fd, content)
            writer.kill()
    after = nothing_staged(mount)
    assert after["free_bytes"] + after["pending_bytes"] == before["free_bytes"] + before["pending_bytes"]
    assert after["used_bytes"] == before["used_bytes"]
    assert after["counters"]["abandoned"] == 100
    assert after["counters"]["evictions"] == 0
    assert os.listdir(kv) == []


def staged_names(kv: Path) -> list[str]:
    """Paths that .hcfs/staged lists below the namespace."""
    lines = (kv.parent / ".hcfs" / "staged").read_text().splitlines()
    return [line for line in lines if f"{kv.name}/" in line]
