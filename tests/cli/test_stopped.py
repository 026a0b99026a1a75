"""What others stop before its end isn't taken for done: exit code 3, and Ctrl-C has codes of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.harness.actors import Actor, eventually, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

MIB = 1 << 20


def begin(*words: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "hcfs", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def stop_all(mount: Mount) -> None:
    """As another program may."""
    with open(mount.dir / ".hcfs" / "control", "r+b", buffering=0) as control:
        for each in mount.status()["commands"]:
            control.write(json.dumps({"command": "stop", "id": each["id"]}).encode())


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_removal(make_mount: Callable[..., Mount], words: tuple[str, ...]) -> None:
    mount = make_mount(size="64M")
    kv = mount.ns()
    put(kv / "open", b"x" * MIB)
    with Actor() as reader:
        reader.open(kv / "open", os.O_RDONLY)
        process = begin("ns", "rm", mount.dir, "kv", "--force", "--wipe", *words)
        eventually(lambda: mount.status()["commands"], "it runs")
        eventually(lambda: not mount.status()["namespaces"]["kv"]["objects"], "removed")
        stop_all(mount)
        said, complaint = process.communicate(timeout=60)
    assert process.returncode == 3, complaint
    assert "was stopped before its end" in complaint.splitlines()[-1]
    if words:
        assert (json.loads(said)["stopped"], json.loads(said)["removed"]) == (True, False)
    assert kv.exists()


def test_an_eviction(make_mount: Callable[..., Mount]) -> None:
    """Whether the word comes in time or not, the exit code is that of the answer."""
    mount = make_mount(size="64M", options="lookup_grace=0")
    kv = mount.ns()
    for number in range(1500):
        (kv / f"{number}").write_bytes(b"x")
    process = begin("evict", mount.dir, "kv", "--all", "--json")
    while process.poll() is None:
        stop_all(mount)
    said, complaint = process.communicate(timeout=60)
    answer = json.loads(said)
    assert process.returncode == (3 if answer["stopped"] else 0)
    assert ("was stopped before its end" in complaint) is answer["stopped"]


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_check(tmp_path: Path, words: tuple[str, ...]) -> None:
    """fsck has the code of fsck(8)."""
    image, directory = tmp_path / "image", tmp_path / "mnt"
    directory.mkdir()
    hcfs("mkfs", image, "--size", "1G")
    hcfs("mount", image, directory, "--log", tmp_path / "log")
    try:
        (directory / "kv").mkdir()
        for number in range(10):
            put(directory / "kv" / f"{number}", os.urandom(64 * MIB))
    finally:
        hcfs("umount", directory)
    process = begin("fsck", image, "--data", *words)

    def has_read() -> bool:
        fields = dict(line.split(": ") for line in Path(f"/proc/{process.pid}/io").read_text().splitlines())
        return int(fields["rchar"]) > 40 * MIB

    eventually(has_read, "under way")
    process.send_signal(signal.SIGINT)
    said, complaint = process.communicate(timeout=60)
    assert process.returncode == 32, complaint
    assert "stopped before its end" in complaint
    if words:
        assert json.loads(said) == {"clean": None, "stopped": True, "repairs": []}
    else:
        assert said == ""
    assert json.loads(hcfs("fsck", image, "--json").stdout)["stopped"] is False
