"""`hcfs evict`, and who may use the control file of a real mount."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.harness import programs
from lab.harness.actors import Actor, errno_of, load, pattern, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

MIB = 1 << 20


def evict(mount: Mount, *words: str) -> dict[str, Any]:
    answer = json.loads(hcfs("evict", mount.dir, *words, "--json").stdout)
    assert isinstance(answer, dict)
    return answer


def test_by_bytes_and_all(shared_mount: Mount, kv: Path) -> None:
    for number in range(8):
        put(kv / f"{number}", pattern(number, MIB))
    with Actor() as reader:
        held = reader.open(kv / "0", os.O_RDONLY)
        before = shared_mount.status()
        answer = evict(shared_mount, kv.name, "--bytes", "1500K")
        assert (answer["objects"], answer["freed_bytes"]) == (2, 2 * MIB)
        assert sorted(os.listdir(kv)) == ["0", *map(str, range(3, 8))]
        assert errno_of(os.stat, kv / "1") == "ENOENT"
        after = shared_mount.status()
        assert after["free_bytes"] - before["free_bytes"] == 2 * MIB
        assert after["counters"]["evictions"] - before["counters"]["evictions"] == 2
        answer = evict(shared_mount, kv.name, "--all")
        assert (answer["objects"], answer["freed_bytes"]) == (5, 5 * MIB)
        assert (answer["kept"]["pinned_objects"], answer["kept"]["pinned_bytes"]) == (1, MIB)
        said = hcfs("evict", shared_mount.dir, kv.name, "--all").stdout
        assert said.splitlines() == [
            "0 objects evicted, 0 B freed",
            "1 objects stay, 1.0 MiB: pinned (open, or mapped)",
        ]
        assert reader.pread(held, 100, MIB - 50) == pattern(0, MIB)[-50:]
    assert evict(shared_mount, kv.name, "--all")["objects"] == 1
    assert os.listdir(kv) == []


def test_what_a_lookup_protects_stays(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(size="64M", options="lookup_grace=1h")
    kv = mount.ns()
    for name in ("asked", "unasked"):
        put(kv / name, pattern(name, MIB))
    mount.umount()
    mount.mount()
    os.stat(kv / "asked")
    answer = evict(mount, "kv", "--all")
    assert (answer["objects"], answer["kept"]["protected_objects"], answer["kept"]["protected_bytes"]) == (1, 1, MIB)
    assert os.listdir(kv) == ["asked"]
    # What went is durable when the command returns.
    mount.kill()
    mount.mount()
    assert os.listdir(kv) == ["asked"]


def test_wrong_words(shared_mount: Mount, kv: Path, tmp_path: Path) -> None:
    put(kv / "a", b"1")
    for words in (["absent", "--all"], [kv.name], [kv.name, "--all", "--bytes", "1M"], [kv.name, "--bytes", "x"]):
        result = hcfs("evict", shared_mount.dir, *words, check=False)
        assert (result.returncode, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1
    assert "absent" in hcfs("evict", shared_mount.dir, "absent", "--all", check=False).stderr
    assert hcfs("evict", tmp_path, "kv", "--all", check=False).returncode == 1
    assert load(kv / "a") == b"1"


def test_a_mount_that_is_read_only(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(size="64M")
    put(mount.ns() / "a", b"1")
    mount.umount()
    mount.mount("ro")
    result = hcfs("evict", mount.dir, "kv", "--all", check=False)
    assert result.returncode == 1
    assert "read-only" in result.stderr
    assert load(mount.dir / "kv" / "a") == b"1"


def test_foreign_users(make_mount: Callable[..., Mount]) -> None:
    """Refused by the kernel, whose answer the daemon repeats; the owner of the root may."""
    mount = make_mount(size="64M", options="allow_other,lookup_grace=0")
    kv = mount.ns()
    put(kv / "a", b"1")
    kv.chmod(0o777)  # so that only the daemon can refuse options
    with Actor() as stranger, Actor() as owner:
        stranger.become(12345, 12345, mount.dir)
        owner.become(12346, 12346, mount.dir)
        for who in (stranger, owner):
            assert errno_of(who.open, ".hcfs/control", os.O_RDWR) == "EACCES"
            assert errno_of(who.setxattr, "kv", "user.hcfs.verify", b"open") == "EPERM"
        os.chown(mount.dir, 12346, 12346)
        time.sleep(1.1)  # for so long the kernel answers for attributes of .hcfs
        assert errno_of(stranger.open, ".hcfs/control", os.O_RDWR) == "EACCES"
        assert errno_of(owner.open, ".hcfs/control", os.O_RDONLY) == "EACCES"
        control = owner.open(".hcfs/control", os.O_RDWR)
        owner.write(control, b'{"command": "evict", "namespace": "kv"}')
        assert json.loads(owner.read(control, 1000))["objects"] == 1
        assert errno_of(owner.write, control, b"{") == "EINVAL"
        assert "JSON" in json.loads(owner.read(control, 1000))["error"]
        owner.setxattr("kv", "user.hcfs.verify", b"open")
        assert errno_of(stranger.setxattr, "kv", "user.hcfs.verify", b"read") == "EPERM"
    assert os.listdir(kv) == []


def test_beside_readers_and_writers(shared_mount: Mount, kv: Path) -> None:
    """Whatever is read is whole, whatever is stored is there or evicted; no call fails but for a miss."""
    script = """
import os, sys, time
from lab.harness.actors import load, pattern, store
end, kv, me = time.monotonic() + 2.5, sys.argv[1], int(sys.argv[2])
loads = 0
while time.monotonic() < end:
    for number in range(6):
        if me % 2:
            store(f"{kv}/{number}.{me}.tmp", pattern(number, 200_000))
            os.rename(f"{kv}/{number}.{me}.tmp", f"{kv}/{number}")
        else:
            try:
                assert load(f"{kv}/{number}") == pattern(number, 200_000)
                loads += 1
            except FileNotFoundError:
                pass
print(loads)
"""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", script, kv, str(me)], env=programs.environment(), stdout=subprocess.PIPE
        )
        for me in range(4)
    ]
    evicted = 0
    with open(shared_mount.dir / ".hcfs" / "control", "r+b", buffering=0) as control:
        while any(worker.poll() is None for worker in workers):
            control.write(json.dumps({"command": "evict", "namespace": kv.name}).encode())
            evicted += json.loads(control.read(4096))["objects"]
    loads = [int(worker.communicate()[0]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4
    assert evicted > 10
    assert sum(loads) > 10
    assert "error" not in json.dumps(shared_mount.status()["state"])


def test_many_at_once(shared_mount: Mount, kv: Path) -> None:
    """Each handle has its own answers; a write that finds too many commands is told to come again."""
    for number in range(20):
        put(kv / f"{number}", b"x" * 5000)
    script = """
import errno, json, sys
done = 0
with open(sys.argv[1], "r+b", buffering=0) as control:
    while done < 20:
        try:
            control.write(json.dumps({"command": "evict", "namespace": sys.argv[2], "bytes": 1}).encode())
        except OSError as error:
            assert error.errno == errno.EBUSY and "running already" in json.loads(control.read(4096))["error"]
            continue
        assert set(json.loads(control.read(4096))) == {"freed_bytes", "objects", "kept", "stopped"}
        done += 1
"""
    path = shared_mount.dir / ".hcfs" / "control"
    workers = [subprocess.Popen([sys.executable, "-c", script, path, kv.name]) for _ in range(8)]
    assert [worker.wait(60) for worker in workers] == [0] * 8
    assert os.listdir(kv) == []
