"""`hcfs scrub` on a mount in use: damage is found before a reader meets it, and a pass can be left and taken up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mount.damage import flip

from lab.harness import programs
from lab.harness.actors import Actor, errno_of, eventually, load, load_direct, pattern, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

MIB = 1 << 20
WARNINGS = (r"is quarantined: granule",)


def scrub(mount: Mount, *words: str, code: int = 0) -> list[dict[str, Any]]:
    """The lines that a scrub printed."""
    result = hcfs("scrub", mount.dir, "--json", *words, check=False)
    assert result.returncode == code, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def begin(mount: Mount, *words: str) -> subprocess.Popen[str]:
    command = [*hcfs("--version").args[:3], "scrub", str(mount.dir), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def checked(mount: Mount) -> int:
    value = mount.status()["scrub"]["checked_bytes"]
    assert isinstance(value, int)
    return value


def test_damage_on_a_loop_device_in_use(make_mount: Callable[..., Mount]) -> None:
    """Flips under a mount whose names and pages the kernel has: found, and a miss for everybody at once. Writers,
    readers and evictions go on meanwhile, and none of their objects is taken for bad."""
    mount = make_mount(loop=True, size="256M", options="lookup_grace=0", allow_warnings=WARNINGS)
    kv, busy = mount.ns(), mount.ns("busy")
    contents = {f"{number}": pattern(number, 3 * MIB + number) for number in range(20)}
    for name, content in contents.items():
        put(kv / name, content)
        load(kv / name)
    os.link(kv / "7", kv / "seven")
    script = """
import os, sys, time
from lab.harness.actors import load, pattern, store
busy, me, number = sys.argv[1], int(sys.argv[2]), 0
while True:
    name = f"{busy}/{number % 7}"
    if me % 2:
        store(f"{name}.{me}.tmp", pattern(number % 7, 500_000))
        os.rename(f"{name}.{me}.tmp", name)
        if number % 5 == 0:
            store(f"{busy}/{me}.lock", b"%d" % number)
    else:
        try:
            assert load(name) == pattern(number % 7, 500_000)
        except FileNotFoundError:
            pass
    number += 1
"""
    workers = [
        subprocess.Popen([sys.executable, "-c", script, busy, str(me)], env=programs.environment()) for me in range(3)
    ]
    try:
        with Actor() as holder:
            assert holder.stat(kv / "seven").st_nlink == 2
            held = holder.open(kv / "13", os.O_RDONLY)
            for name, position in (("7", 5), ("13", 2 * MIB), ("19", 3 * MIB + 18)):
                flip(mount.source, contents[name], position)
            process = begin(mount, "--rate", "40M")
            with open(mount.dir / ".hcfs" / "control", "r+b", buffering=0) as control:
                while process.poll() is None:
                    control.write(b'{"command": "evict", "namespace": "busy", "bytes": 1}')
            said, complaint = process.communicate()
            assert process.returncode == 1, complaint
            for name in ("7", "seven", "13", "19"):
                assert errno_of(holder.stat, kv / name) == errno_of(os.stat, kv / name) == "ENOENT"
            # The pages of an open file that were verified when they were read go as well.
            eventually(lambda: errno_of(holder.pread, held, 4096, 2 * MIB) == "EIO", "dropped")
            assert holder.pread(held, 4096, 0) == contents["13"][:4096]
        assert all(worker.poll() is None for worker in workers), "a worker met what it mustn't"
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    lines = said.splitlines()
    assert [line.split(":")[1].strip() for line in lines[:-1]] == ["kv/7", "kv/13", "kv/19"]
    assert "3 damaged, quarantined" in lines[-1]
    status = mount.status()
    assert status["quarantined_objects"] == status["counters"]["checksum_errors"] - 1 == 3
    assert (status["scrub"]["state"], status["scrub"]["damaged"]) == ("finished", 3)
    assert {bad["path"] for bad in status["scrub"]["bad"]} == {"kv/7", "kv/13", "kv/19"}
    for name in sorted(set(contents) - {"7", "13", "19"}):
        assert load_direct(kv / name) == contents[name]
    # The next pass doesn't read them again.
    (*_, done) = scrub(mount)
    assert (done["state"], done["damaged"], done["bad"]) == ("finished", 0, [])


def test_left_and_taken_up(make_mount: Callable[..., Mount]) -> None:
    """By Ctrl-C, by unmounting, by a crash: each time the next pass goes on. Damage counts for the whole pass."""
    mount = make_mount(size="128M", allow_warnings=WARNINGS)
    kv = mount.ns()
    contents = {f"{number:02}": pattern(number, 2 * MIB) for number in range(16)}
    for name, content in contents.items():
        put(kv / name, content)
    flip(mount.source, contents["00"], 77)

    process = begin(mount, "--rate", "4M")
    eventually(lambda: checked(mount) >= 3 * MIB, "begun")
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"hcfs scrub {mount.dir}" in complaint
    first = eventually(lambda: (now := mount.status()["scrub"])["state"] == "stopped" and now, "stopped")
    assert (first["damaged"], first["objects"] >= 1, first["finished_at"]) == (1, True, None)
    assert errno_of(os.stat, kv / "00") == "ENOENT"

    process = begin(mount, "--rate", "4M")
    eventually(lambda: checked(mount) > first["checked_bytes"] + 2 * MIB, "gone on")
    mount.umount()
    assert process.wait(30) == 3
    assert process.communicate()[1].startswith("hcfs: the scrub ")
    mount.mount()
    second = mount.status()["scrub"]
    assert second["state"] == "stopped"
    assert second["position"] > first["position"]
    assert second["began_at"] == first["began_at"]

    hcfs("scrub", mount.dir, "--rate", "1T", check=False)
    third = mount.status()["scrub"]
    assert (third["state"], third["damaged"], third["objects"]) == ("finished", 1, 16)
    (last, *_) = scrub(mount, "--rate", "1T")
    assert last["began_at"] > third["began_at"]


def test_a_pass_that_was_stopped_can_be_begun_anew(make_mount: Callable[..., Mount]) -> None:
    """And a second command watches the pass that runs, whose rate it may change."""
    mount = make_mount(size="64M")
    for number in range(6):
        put(mount.ns() / f"{number}", pattern(number, 2 * MIB))
    process = begin(mount, "--rate", "1M", "--json")
    eventually(lambda: checked(mount) >= MIB, "begun")
    lines = scrub(mount, "--rate", "1G")
    assert lines[-1]["state"] == "finished"
    assert lines[-1]["objects"] == 6
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(said.splitlines()[-1]) == lines[-1]

    process = begin(mount, "--rate", "3M")
    began = lines[-1]["began_at"]
    eventually(lambda: (now := mount.status()["scrub"])["began_at"] > began and now["objects"], "one is done")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    stopped = eventually(lambda: (now := mount.status()["scrub"])["state"] == "stopped" and now, "stopped")
    lines = scrub(mount, "--rate", "1G", "--restart")
    assert lines[0]["began_at"] > stopped["began_at"]
    assert lines[-1]["objects"] == 6


def test_the_daemon_ends_a_pass_at_once(make_mount: Callable[..., Mount]) -> None:
    """However slow it goes: at the slowest rate a step would take days."""
    mount = make_mount(size="64M")
    put(mount.ns() / "a", pattern("a", 3 * MIB))
    with open(mount.dir / ".hcfs" / "control", "r+b", buffering=0) as control:
        control.write(b'{"command": "scrub", "action": "start", "rate": 1}')
        assert json.loads(control.read(4096))["state"] == "running"
    time.sleep(0.2)
    begun = time.monotonic()
    mount.kill(signal.SIGTERM)
    assert time.monotonic() - begun < 20
    mount.mount()
    assert mount.status()["scrub"]["state"] == "stopped"


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_pass_that_others_stop_is_no_clean_one(make_mount: Callable[..., Mount], words: tuple[str, ...]) -> None:
    """By another command, by the end of the daemon, by its death: 3, and a sentence; whoever began it and whoever
    watches. The daemon that comes next knows of a whole pass, which isn't taken for this one."""
    mount = make_mount(size="64M")
    for number in range(6):
        put(mount.ns() / f"{number}", pattern(number, 2 * MIB))
    scrub(mount, "--rate", "1T")

    def unfinished(stop: Callable[[], object]) -> list[str]:
        """The state in the last line of each, where they print JSON."""
        processes = []
        for rate in (MIB, MIB + 1):
            processes.append(begin(mount, "--rate", str(rate), *words))
            eventually(lambda rate=rate: mount.status()["scrub"]["rate_bytes"] == rate, "begun")
        stop()
        states = []
        for process in processes:
            said, complaint = process.communicate(timeout=60)
            assert process.returncode == 3, complaint
            (line,) = complaint.splitlines()
            assert line.startswith("hcfs: the scrub ")
            if words:
                states.append(json.loads(said.splitlines()[-1])["state"])
        return states

    def by_command() -> None:
        with open(mount.dir / ".hcfs" / "control", "r+b", buffering=0) as control:
            control.write(b'{"command": "scrub", "action": "stop"}')

    assert set(unfinished(by_command)) <= {"stopped"}
    assert set(unfinished(lambda: mount.kill(signal.SIGTERM))) <= {"lost"}
    mount.mount()
    scrub(mount, "--rate", "1T")

    def by_death() -> None:
        mount.kill()
        mount.mount()

    assert set(unfinished(by_death)) <= {"lost", "stopped", "running"}
    begun = begin(mount, "--rate", "1M", "--json")
    eventually(lambda: mount.status()["scrub"]["state"] == "running" and checked(mount) >= MIB, "begun")
    begun.send_signal(signal.SIGINT)
    said, _ = begun.communicate(timeout=60)
    assert (begun.returncode, json.loads(said.splitlines()[-1])["state"]) == (130, "stopped")


def test_wrong_words(shared_mount: Mount, tmp_path: Path) -> None:
    for words in (["--rate", "0"], ["--rate", "fast"]):
        result = hcfs("scrub", shared_mount.dir, *words, check=False)
        assert (result.returncode, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert hcfs("scrub", tmp_path, check=False).returncode == 1
    with open(shared_mount.dir / ".hcfs" / "control", "r+b", buffering=0) as control:
        for words in ({}, {"action": "pause"}, {"action": "start", "rate": "x"}, {"action": "start", "restart": 1}):
            assert errno_of(control.write, json.dumps({"command": "scrub", **words}).encode()) == "EINVAL"
    assert shared_mount.status()["scrub"]["state"] == "idle"
