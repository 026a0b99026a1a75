"""`hcfs top`: rates that add up to the counters, a picture on any terminal, and how it ends."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hcfs.cli import top
from hcfs.cli.top_interval import interval
from hcfs.cli.top_picture import picture
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.terminal import Terminal


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    with ExitStack() as stack:

        def start(*args: str | Path, **size: int) -> Terminal:
            terminal = Terminal(*args, **size)
            stack.callback(terminal.close)
            return terminal

        yield start


def begin(*args: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "hcfs", *(str(arg) for arg in args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and what was said on stderr."""
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def test_rates_add_up_to_the_counters(shared_mount: Mount, kv: Path) -> None:
    process = begin("top", shared_mount.dir, "--json", "--interval", "0.2")
    try:
        assert process.stdout is not None
        documents = [json.loads(process.stdout.readline())]
        before = shared_mount.status()["counters"]
        for number in range(5):
            (kv / f"{number}").write_bytes(os.urandom(1 << 20))
        assert not (kv / "absent").exists()
        while sum(each["rates"]["written_bytes"] for each in documents[1:]) == 0:
            documents.append(json.loads(process.stdout.readline()))
        documents.append(json.loads(process.stdout.readline()))
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0
    seen = sum(each["rates"]["written_bytes"] * each["interval_s"] for each in documents)
    written = shared_mount.status()["counters"]["written_bytes"] - before["written_bytes"]
    assert seen == pytest.approx(written, rel=0.01)
    assert sum(each["rates"]["lookup_misses"] for each in documents) > 0
    assert sum(each["requests"].get("CREATE", 0) for each in documents) > 0
    last = documents[-1]
    assert last["namespaces"][kv.name]["used_bytes"] == 5 << 20
    assert (last["state"], last["errors"], last["fetches"]) == ("ok", [], [])
    parts = ("used", "free", "staged", "pending", "quarantined")
    assert sum(last[f"{part}_bytes"] for part in parts) == last["capacity_bytes"]


def test_plain_lines_where_there_is_no_terminal(shared_mount: Mount) -> None:
    lines = hcfs("top", shared_mount.dir, "--iterations", "2", "--interval", "0.1").stdout.splitlines()
    assert len(lines) == 2
    assert all("  ok  read " in line and "  free " in line for line in lines)
    assert len(hcfs("top", shared_mount.dir, "--once", "--interval", "0.1").stdout.splitlines()) == 1


def test_usage(shared_mount: Mount, tmp_path: Path) -> None:
    for words in (["--interval", "0"], ["--iterations", "0"], ["--interval", "nan"]):
        assert hcfs("top", shared_mount.dir, *words, check=False, timeout=20).returncode == 2
    nothing = hcfs("top", tmp_path, "--once", check=False)
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert nothing.stderr.startswith(f"hcfs: {tmp_path} is not an hcfs mount; give the directory")


@pytest.mark.parametrize("how", ["q", "ctrl-c", "terminated"])
def test_the_terminal_is_as_it_was(shared_mount: Mount, terminal: Callable[..., Terminal], how: str) -> None:
    watched = terminal("top", shared_mount.dir, "--interval", "0.1")
    watched.until("last 0.")
    assert watched.modes != watched.modes_before
    if how == "terminated":
        watched.process.send_signal(signal.SIGTERM)
    else:
        watched.press("q" if how == "q" else "\x03")
    assert watched.end() == (128 + signal.SIGTERM if how == "terminated" else 0)
    assert watched.modes == watched.modes_before
    assert watched.drawn.endswith("\x1b[?25h\x1b[?1049l")  # the cursor shown, the former screen back
    assert "Traceback" not in watched.drawn


@pytest.mark.parametrize(("rows", "columns"), [(40, 120), (10, 30), (3, 8), (1, 1)])
def test_any_size_of_terminal(shared_mount: Mount, terminal: Callable[..., Terminal], rows: int, columns: int) -> None:
    watched = terminal("top", shared_mount.dir, "--interval", "0.1", rows=rows, columns=columns)
    watched.until("\x1b[H")
    watched.press("q")
    assert watched.end() == 0
    assert len(watched.screen) <= rows
    assert all(len(line) <= columns for line in watched.screen)
    if columns > 100:
        text = "\n".join(watched.screen)
        for shown in (str(shared_mount.dir), "state ok", "read ", "lookup misses", "quarantined", "memory", "threads"):
            assert shown in text


@pytest.mark.parametrize("end", ["umount", "kill"])
@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_mount_that_ends_is_one_sentence(
    make_mount: Callable[..., Mount], terminal: Callable[..., Terminal], end: str, words: list[str]
) -> None:
    mount = make_mount(size="64M")
    if words:
        process = begin("top", mount.dir, "--interval", "0.1", *words)
        assert process.stdout is not None
        process.stdout.readline()
    else:
        watched = terminal("top", mount.dir, "--interval", "0.1")
        watched.until("last 0.")
    if end == "umount":
        mount.umount()
    else:
        mount.kill()
    if words:
        code, said = ended(process)
    else:
        code = watched.end()
        assert watched.modes == watched.modes_before
        said = watched.drawn.rpartition("\x1b[?1049l")[2]
    assert (code, len(said.splitlines())) == (1, 1)
    assert said.startswith(f"hcfs: the mount at {mount.dir} ")
    assert "mount it again" in said


def test_a_mount_that_was_made_anew_begins_anew(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(size="64M")
    (mount.ns() / "object").write_bytes(bytes(100_000))
    before = mount.status()
    mount.umount()
    mount.mount()
    document = interval(before, mount.status(), 1.0)
    assert document["interval_s"] is None
    assert set(document["rates"].values()) == {None}


ORIGIN = {
    "last_error": "bucket/\x1b[31m is gone",
    "failed_objects": 2,
    "failed": [{"path": "a/b", "reason": "AccessDenied"}] * 2,
    "uploading": [{"path": "c", "bytes": 4 << 20, "sent_bytes": 3 << 20}],
    "ingesting": [{"key": "a/\x1b]0;x\x07" + "k" * 50, "bytes": 5 << 20, "size": 10 << 20}],
}


def bad_status(mount: Mount) -> dict[str, Any]:
    """A mount's own status, with everything in it that may be wrong, or hostile to a terminal."""
    status = mount.status()
    return status | {
        "state": "degraded",
        "state_reason": "the directory of object 5 is damaged; run 'hcfs fsck --repair'",
        "quarantined_bytes": 4096,
        "dirty_bytes": 4096,
        "origins": {"weights": ORIGIN},
        "namespaces": {
            **status["namespaces"],
            "\x1b[2J\nx": {"used_bytes": 9, "quota_bytes": 0, "evictions": 3},
            "weights": {"used_bytes": 8, "write_policy": "write-back", "dirty_bytes": 4},
            "w" * 300: {"used_bytes": 1 << 50, "quota_bytes": 1 << 49, "evictions": 3, "objects": 1 << 40},
        },
        "scrub": {**status["scrub"], "state": "running", "bad": [{"path": "/kv/x", "reason": "checksum"}] * 5},
    }


def test_what_is_wrong_is_seen_at_any_width(shared_mount: Mount) -> None:
    status = bad_status(shared_mount)
    earlier = {**status, "origins": {"weights": ORIGIN | {"ingesting": [{**ORIGIN["ingesting"][0], "bytes": 0}]}}}
    document = interval(earlier, status, 2.0)
    assert [each["bytes_rate"] for each in document["fetches"]] == [5 * (1 << 20) / 2]
    assert document["uploads"] == [
        {"namespace": "weights", "key": "c", "bytes": 3 << 20, "size": 4 << 20, "bytes_rate": 0.0}
    ]
    assert {"where": "weights/a/b", "error": "not uploaded: AccessDenied"} in document["errors"]
    for width in [*range(1, 40), 64, 80, 200]:
        out = io.StringIO()
        Console(file=out, width=width, force_terminal=True, color_system=None).print(picture(document))
        lines = out.getvalue().splitlines()
        assert all(len(line) <= width for line in lines)
        assert "\x1b" not in out.getvalue()
        if width >= 80:
            assert lines[1].startswith("state DEGRADED: the directory of object 5 is damaged")
            assert "2.5 MiB/s" in out.getvalue()
            assert "bucket/\\x1b[31m is gone" in out.getvalue()
        if width >= 120:
            assert "write-back, 2 failed" in out.getvalue()


def test_what_was_given_up_is_in_a_plain_line(shared_mount: Mount, capsys: pytest.CaptureFixture[str]) -> None:
    top._print_line(interval(None, bad_status(shared_mount), 1.0))
    assert "  uploads given up 2" in capsys.readouterr().out
    top._print_line(interval(None, shared_mount.status(), 1.0))
    assert "given up" not in capsys.readouterr().out


def test_an_older_or_newer_daemons_status_is_shown() -> None:
    """Fields that a status lacks are left out; nothing needs more than the ones that all have."""
    bare: dict[str, Any] = {"state": "ok", "mounted_at": 1, "counters": {"opens": 1}, "namespaces": {"kv": {}}}
    document = interval(bare, bare | {"counters": {"opens": 3, "new": 1}}, 1.0)
    assert document["rates"] == {"opens": 2.0, "new": 1.0}
    Console(file=io.StringIO(), width=80).print(picture(document))
