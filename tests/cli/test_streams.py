"""Every command with a stdout that is closed, full, or read by nobody: what it has to do is done, and it ends with the
status that the page on operations names."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.harness.actors import put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

WAYS = {"closed": ">&-", "full": ">/dev/full"}
"""How a shell says it; `gone` is a pipe without a reader."""

SAID = {"closed": "Bad file descriptor", "full": "No space left on device", "gone": ""}


@pytest.fixture(params=SAID)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def unheard(way: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """One command with such a stdout."""
    command = [sys.executable, "-m", "hcfs", *map(str, words)]
    if way == "gone":
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "wb") as stdout:
            return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True)
    script = f"exec {shlex.join(command)} {WAYS[way]}"
    return subprocess.run(["sh", "-c", script], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def worked(way: str, *words: str | Path, code: int = 0, silent: bool = False) -> None:
    """It has its own exit code, and says that it wasn't heard. silent: it had nothing to say."""
    done = unheard(way, *words)
    assert done.returncode == code, (words, done.stderr)
    if silent or way == "gone":
        assert done.stderr == "", words
    else:
        (line,) = done.stderr.splitlines()
        assert SAID[way] in line, words
        assert "bug" not in line


def reported(way: str, *words: str | Path) -> None:
    """All that it is for is lost: 1."""
    worked(way, *words, code=1)


@pytest.fixture
def mount(make_mount: Callable[..., Mount]) -> Mount:
    """With a namespace, and a file in it."""
    mounted = make_mount(size="64M", options="lookup_grace=0")
    put(mounted.ns() / "f", b"x" * 5000)
    return mounted


def test_commands_that_report(mount: Mount, tmp_path: Path, way: str) -> None:
    weights = tmp_path / "w.safetensors"
    head = json.dumps({"t": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}}).encode()
    weights.write_bytes(len(head).to_bytes(8, "little") + head + bytes(8))
    reported(way, "--help")
    reported(way, "--version")
    for as_json in ((), ("--json",)):
        reported(way, "info", mount.source, *as_json)
        reported(way, "status", mount.dir, *as_json)
        reported(way, "top", mount.dir, "--iterations", "3", "--interval", "0.1", *as_json)
        reported(way, "ns", "list", mount.dir, *as_json)
        reported(way, "ns", "show", mount.dir, "kv", *as_json)
        reported(way, "keys", mount.dir, "kv", *as_json)
        reported(way, "lmcache-config", mount.dir, "kv", *as_json)
        reported(way, "weights", "plan", weights, *as_json)
        reported(way, "weights", "load", weights, *as_json)
        for what in ("superblock", "log", "objects", "extents"):
            reported(way, "inspect", mount.source, what, *as_json)
        reported(way, "inspect", mount.source, "object", "/kv", *as_json)


def test_commands_that_work(tmp_path: Path, way: str) -> None:
    """From a store's making to its end: each step's effect is there."""
    image, directory = tmp_path / "new.img", tmp_path / "mnt"
    directory.mkdir()
    (directory / "hidden").touch()
    worked(way, "mkfs", image, "--size", "64M")
    done = unheard(way, "mount", image, directory, "--log", tmp_path / "log", "--json")
    try:
        assert done.returncode == 0, done.stderr
        assert [line for line in done.stderr.splitlines() if "isn't empty" not in line] == [
            line for line in done.stderr.splitlines() if SAID[way] and SAID[way] in line
        ]
        worked(way, "ns", "create", directory, "kv")
        worked(way, "ns", "set", directory, "kv", "--quota", "40M", silent=True)
        worked(way, "ns", "set", directory, "kv", "--quota", "50M", "--json")
        assert json.loads(hcfs("ns", "list", directory, "--json").stdout)["kv"]["quota_bytes"] == 50 << 20
        put(directory / "kv" / "f", b"x" * 5000)
        worked(way, "scrub", directory)
        worked(way, "scrub", directory, "--json")
        status = json.loads(hcfs("status", directory, "--json").stdout)
        assert (status["scrub"]["state"], status["scrub"]["objects"]) == ("finished", 1)
        doctor = unheard(way, "doctor", directory)
        assert doctor.returncode in (0, 1)
        assert len(doctor.stderr.splitlines()) == (0 if way == "gone" else 1)
        worked(way, "evict", directory, "kv", "--bytes", "1")
        worked(way, "ns", "rm", directory, "kv", "--force")
        assert [name for name in os.listdir(directory) if name != ".hcfs"] == []
    finally:
        worked(way, "umount", directory, silent=True)
    worked(way, "fsck", image)
    image.write_bytes(b"\0" * (8 << 20))
    done = unheard(way, "fsck", image)
    assert (done.returncode, len(done.stderr.splitlines())) == (8, 1)


def test_no_stdin_and_no_stderr(make_image: Callable[..., Path], tmp_path: Path) -> None:
    """All three closed, or stderr full: the work is done with its own code, and the daemon's device, the first file
    that it opens, isn't taken for a stream."""
    image, directory = make_image("64M"), tmp_path / "mnt"
    directory.mkdir()
    for streams in ("<&- >&- 2>&-", "<&- >/dev/full 2>/dev/full"):

        def run(*words: str | Path, streams: str = streams) -> int:
            command = shlex.join([sys.executable, "-m", "hcfs", *map(str, words)])
            return subprocess.run(["sh", "-c", f"exec {command} {streams}"]).returncode

        assert run("mkfs", image, "--force") == 0
        assert run("mount", image, directory, "--log", tmp_path / "log") == 0
        try:
            (directory / "kv").mkdir()
            (directory / "kv" / "f").write_bytes(b"y" * 70000)
            assert (directory / "kv" / "f").read_bytes() == b"y" * 70000
            assert run("status", directory) == 1
            assert run("ns", "show", directory, "none") == 2
            assert run("nonsense") == 2
        finally:
            assert run("umount", directory) == 0
        assert run("fsck", image, "--data") == 0
        # mkfs would ask at a terminal: there is none.
        assert run("mkfs", image) == 1


def test_a_reader_that_leaves_early(mount: Mount) -> None:
    """`hcfs top | head -1` ends, and says nothing."""
    command = [sys.executable, "-m", "hcfs", "top", str(mount.dir), "--interval", "0.1", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("{")
    process.stdout.close()
    assert process.wait(30) == 1
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()


def test_in_the_foreground(make_image: Callable[..., Path], tmp_path: Path) -> None:
    """Without streams it serves, and ends with its mount."""
    image, directory = make_image("64M"), tmp_path / "mnt"
    directory.mkdir()
    hcfs("mkfs", image)
    command = shlex.join([sys.executable, "-m", "hcfs", "mount", "-f", str(image), str(directory)])
    process = subprocess.Popen(["sh", "-c", f"exec {command} <&- >&- 2>/dev/full"])
    try:
        while not os.path.ismount(directory):
            assert process.poll() is None
        (directory / "kv").mkdir()
        hcfs("umount", directory)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        subprocess.run(["umount", "-l", str(directory)], check=False, capture_output=True)
