"""`hcfs ns rm`: what it refuses, what becomes of who uses the namespace, and what `--wipe` leaves on the raw device."""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.harness import programs
from lab.harness.actors import Actor, errno_of, eventually, load_direct, pattern, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.terminal import Terminal

MIB = 1 << 20
MARK = b"<what the user said to the model>"


def secret(length: int) -> bytes:
    return (MARK * (length // len(MARK) + 1))[:length]


def found(medium: Path, mark: bytes = MARK) -> bool:
    """Whether the mark is anywhere on the raw device."""
    fd = os.open(medium, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(fd, os.lseek(fd, 0, os.SEEK_END), mmap.MAP_SHARED, mmap.PROT_READ) as memory:
            return memory.find(mark) >= 0
    finally:
        os.close(fd)


def rm(mount: Mount, name: str, *words: str, code: int = 0) -> dict[str, Any]:
    result = hcfs("ns", "rm", mount.dir, name, "--json", *words, check=False)
    assert result.returncode == code, result.stderr
    answer = json.loads(result.stdout)
    assert isinstance(answer, dict)
    return answer


def test_a_namespace_with_files_is_refused_without_force(shared_mount: Mount, kv: Path) -> None:
    (kv / "d" / "e").mkdir(parents=True)
    for name in ("a", "d/b", "d/e/c"):
        put(kv / name, b"1")
    os.symlink("a", kv / "d" / "l")
    refused = hcfs("ns", "rm", shared_mount.dir, kv.name, check=False)
    assert refused.returncode == 1
    assert "holds 4 files" in refused.stderr
    assert "--force" in refused.stderr
    assert sorted(os.listdir(kv)) == ["a", "d"]
    with Actor() as other:
        assert other.stat(kv / "d" / "b").st_nlink == 1
        assert rm(shared_mount, kv.name, "--force") == {"removed": True, "objects": 4, "freed_bytes": 3 * 4096}
        for path in (kv, kv / "a", kv / "d" / "b"):
            assert errno_of(other.stat, path) == errno_of(os.stat, path) == "ENOENT"
    # Directories alone are no files.
    (kv / "d" / "e").mkdir(parents=True)
    assert rm(shared_mount, kv.name)["removed"]
    assert kv.name not in os.listdir(shared_mount.dir)


def test_wrong_names(shared_mount: Mount) -> None:
    for name in ("absent", "", ".hcfs", "..", "a/b", "x" * 2000):
        result = hcfs("ns", "rm", shared_mount.dir, name, "--force", check=False)
        assert (result.returncode, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1


def test_who_uses_it(make_mount: Callable[..., Mount]) -> None:
    """Readers read on, writers publish nothing, locks and listings end, and a new namespace of the name is another."""
    mount = make_mount(size="128M", options="commit_interval=60s")
    kv = mount.ns()
    (kv / "d").mkdir()
    put(kv / "d" / "read", pattern("read", MIB))
    with Actor() as reader, Actor() as writer:
        held = reader.open(kv / "d" / "read", os.O_RDONLY | os.O_DIRECT)
        fd = writer.open(kv / "d" / "new", os.O_WRONLY | os.O_CREAT)
        writer.write(fd, b"unfinished")
        lock = writer.open(kv / "d" / "x.lock", os.O_RDWR | os.O_CREAT)
        refused = hcfs("ns", "rm", mount.dir, "kv", check=False)
        assert "holds 3 files" in refused.stderr
        assert rm(mount, "kv", "--force")["removed"]
        assert reader.pread_direct(held, MIB, 0) == pattern("read", MIB)
        assert errno_of(writer.write, fd, b" work") == "ok"
        assert errno_of(writer.write, lock, b"1") == "ok"
        for handle in (fd, lock):
            assert errno_of(writer.close, handle) == "ok"
        assert mount.status()["pending_bytes"] >= MIB
        # Durable: after a crash it is gone as well.
        mount.ns()
        assert os.listdir(kv) == []
        mount.kill()
    mount.mount()
    assert "kv" not in os.listdir(mount.dir)
    status = mount.status()
    assert (status["used_bytes"], status["staged_objects"]) == (0, 0)


@pytest.mark.parametrize("source", ["loop device", "image"])
def test_no_byte_is_left_on_the_raw_device(make_mount: Callable[..., Mount], source: str) -> None:
    """Neither of files nor of names and attributes; nor of what was replaced, evicted or quarantined before."""
    mount = make_mount(loop=source == "loop device", size="128M", options="lookup_grace=0")
    kv, other = mount.ns(), mount.ns("other")
    put(other / "kept", pattern("kept", 5 * MIB))
    (kv / "a directory of a secret").mkdir()
    for number in range(12):
        path = kv / "a directory of a secret" / f"a name of a secret {number}"
        put(path, secret(2 * MIB + number))
        os.setxattr(path, "user.note", b"an attribute of a secret")
    put(kv / "replaced", secret(3 * MIB))
    put(kv / "replaced", b"2")
    hcfs("evict", mount.dir, "kv", "--bytes", "4M")
    os.unlink(kv / "a directory of a secret" / "a name of a secret 11")
    os.fsync(fd := os.open(kv, os.O_RDONLY))
    os.close(fd)
    assert found(mount.source)
    assert found(mount.source, b"of a secret")
    answer = rm(mount, "kv", "--force", "--wipe")
    assert (answer["removed"], answer["open_bytes"], answer["unfinished_objects"]) == (True, 0, 0)
    # At once, since it is durable; the mount goes on.
    assert not found(mount.source)
    assert not found(mount.source, b"of a secret")
    assert load_direct(other / "kept") == pattern("kept", 5 * MIB)
    put(other / "more", pattern("more", MIB))
    mount.kill()
    mount.mount()
    assert mount.status()["state"] == "ok"
    assert sorted(os.listdir(mount.dir)) == [".hcfs", "other"]
    assert load_direct(other / "kept") == pattern("kept", 5 * MIB)
    mount.umount()
    assert not found(mount.source, b"of a secret")
    hcfs("fsck", mount.source, "--data")


def test_what_is_open_is_told_and_the_command_can_be_given_again(make_mount: Callable[..., Mount]) -> None:
    """The namespace stays, empty, until nothing of it is left. Ctrl-C stops the waiting."""
    mount = make_mount(loop=True, size="64M")
    kv = mount.ns()
    put(kv / "open", secret(3 * MIB))
    with Actor() as reader, Actor() as writer:
        held = reader.open(kv / "open", os.O_RDONLY | os.O_DIRECT)
        fd = writer.open(kv / "written", os.O_WRONLY | os.O_CREAT)
        writer.write(fd, secret(MIB))
        command = [*hcfs("--version").args[:3], "ns", "rm", str(mount.dir), "kv", "--force", "--wipe"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        eventually(lambda: not mount.status()["namespaces"]["kv"]["objects"], "removed")
        # It waits for what is open, and keeps no other command out, as the one that Ctrl-C gives.
        hcfs("evict", mount.dir, "kv", "--all")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said, complaint = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "1 files removed" in said
        assert "the command was stopped" in complaint or "still open" in complaint
        # A command ends with whoever gave it.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        eventually(lambda: mount.status()["commands"], "it runs")
        process.kill()
        process.communicate(timeout=60)
        eventually(lambda: not mount.status()["commands"], "it has ended")
        with open(mount.dir / ".hcfs" / "control", "r+b", buffering=0) as control:
            control.write(b'{"command": "remove", "namespace": "kv", "wipe": true, "patience": 0}')
            answer = json.loads(control.read(4096))
        assert (answer["removed"], answer["open_bytes"], answer["unfinished_objects"]) == (False, 3 * MIB, 1)
        assert os.listdir(kv) == []
        assert reader.pread_direct(held, 3 * MIB, 0) == secret(3 * MIB)
        assert found(mount.source)
        reader.close(held)
        writer.close(fd)
        eventually(lambda: not mount.status()["staged_objects"], "let go")
    assert rm(mount, "kv", "--wipe")["removed"]
    assert not found(mount.source)


def test_how_far_it_is(make_mount: Callable[..., Mount]) -> None:
    """While an open file keeps the wipe waiting, the terminal, the status and `hcfs top` tell how far it is."""
    mount = make_mount(size="64M")
    put(mount.ns() / "object", secret(MIB))
    with (mount.dir / "kv" / "object").open("rb"):
        terminal = Terminal("ns", "rm", mount.dir, "kv", "--force", "--wipe")
        try:
            eventually(lambda: mount.status()["commands"], "the command runs")
            terminal.until("wipe")
            (told,) = mount.status()["commands"]
            assert (told["phase"], 0 < told["done_bytes"] <= told["total_bytes"]) == ("wipe", True)
            shown = json.loads(hcfs("top", mount.dir, "--once", "--interval", "0.1", "--json").stdout)
            assert [each["phase"] for each in shown["commands"]] == ["wipe"]
        except BaseException:
            terminal.close()
            raise
    try:
        assert terminal.end() == 0
    finally:
        terminal.close()
    assert mount.status()["commands"] == []
    assert not found(mount.source)


def test_a_store_in_use(make_mount: Callable[..., Mount]) -> None:
    """Writers in another namespace go on meanwhile; what they store is whole."""
    mount = make_mount(loop=True, size="96M", options="lookup_grace=0")
    kv, other = mount.ns(), mount.ns("other")
    for number in range(40):
        put(kv / f"{number}", secret(MIB))
    script = """
import os, sys
from lab.harness.actors import load_direct, pattern, store
number = 0
while True:
    name = f"{sys.argv[1]}/{number % 9}"
    store(f"{name}.{os.getpid()}.tmp", pattern(number % 9, 900_000))
    os.rename(f"{name}.{os.getpid()}.tmp", name)
    assert load_direct(name) == pattern(number % 9, 900_000)
    number += 1
"""
    workers = [subprocess.Popen([sys.executable, "-c", script, other], env=programs.environment()) for _ in range(2)]
    try:
        eventually(lambda: len(os.listdir(other)) >= 9, "in use")
        assert rm(mount, "kv", "--force", "--wipe")["removed"]
        assert not found(mount.source)
        assert all(worker.poll() is None for worker in workers)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    for name in map(str, range(9)):
        assert load_direct(other / name) == pattern(int(name), 900_000)
    mount.umount()
    hcfs("fsck", mount.source, "--data")
