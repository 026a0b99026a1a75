"""Clients that the daemon can't see, in another pid namespace: each write handle is a version of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.harness.actors import Actor, errno_of, eventually, load, pattern
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

CONTENT = pattern("pid namespaces", 300_000)


@pytest.fixture
def unseen(tmp_path: Path) -> Iterator[Mount]:
    """A mount whose daemon is in a pid namespace below ours: our processes have no id there."""
    mount = Mount(tmp_path / "image", tmp_path / "mnt", allow_warnings=("pid", "process", "namespace"))
    hcfs("mkfs", mount.source, "--size", "64M")
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-m", "hcfs"]
    process = subprocess.Popen([*command, "mount", mount.source, mount.dir, "-f", "--log", mount.log])
    try:
        eventually(lambda: (mount.dir / ".hcfs").exists(), "it serves")
        yield mount
        subprocess.run(["umount", mount.dir], check=True)
        assert process.wait(60) == 0
        assert mount.unexpected_lines() == []
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            subprocess.run(["umount", "-l", mount.dir], check=False)


def test_publishers_work(unseen: Mount) -> None:
    """A temporary name and a rename, a name of its own, replacement, links: as they do everywhere."""
    kv = unseen.ns()
    with Actor() as writer, Actor() as other:
        writer.store(kv / "k.tmp", CONTENT)
        assert errno_of(other.stat, kv / "k") == "ENOENT"
        writer.rename(kv / "k.tmp", kv / "k")
        assert other.load(kv / "k") == CONTENT
        writer.store(kv / "plain", CONTENT)
        eventually(lambda: errno_of(other.stat, kv / "plain") == "ok", "published")
        assert other.load(kv / "plain") == CONTENT
        writer.store(kv / "k", b"replaced")
        eventually(lambda: other.load(kv / "k") == b"replaced", "published")
        subprocess.run(["sh", "-ec", "(echo a; echo b) > s; echo c >> s; cp s t.tmp && mv t.tmp t"], cwd=kv, check=True)
        assert load(kv / "t") == b"a\nb\nc\n"
    assert sorted(os.listdir(kv)) == ["k", "plain", "s", "t"]


def test_each_write_handle_is_a_version(unseen: Mount) -> None:
    """Of one process or of two: bytes never mix, each close publishes a whole object, the later one wins."""
    kv = unseen.ns()
    with Actor() as writer:
        first = writer.open(kv / "x", os.O_WRONLY | os.O_CREAT)
        second = writer.open(kv / "x", os.O_WRONLY | os.O_CREAT)
        assert writer.fstat(first).st_ino != writer.fstat(second).st_ino
        writer.write(first, b"the first")
        writer.write(second, b"second")
        assert errno_of(os.stat, kv / "x") == "ENOENT"
        writer.close(second)
        eventually(lambda: errno_of(os.stat, kv / "x") == "ok", "published")
        assert load(kv / "x") == b"second"
        writer.write(first, b", whole")
        writer.close(first)
        eventually(lambda: load(kv / "x") == b"the first, whole", "published")


def test_status_says_so(unseen: Mount) -> None:
    """That handles of one process don't share a version is to be seen, once such a client has written."""
    kv = unseen.ns()
    assert unseen.status()["sharing"] == "process"
    with Actor() as writer:
        writer.store(kv / "x", CONTENT)
        eventually(lambda: errno_of(os.stat, kv / "x") == "ok", "published")
    assert unseen.status()["sharing"] == "handle"
