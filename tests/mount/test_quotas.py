"""Quotas on a mount: writers of several processes, changes while mounted, what df, du, ls and the status say."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lab.harness.actors import Actor, errno_of, eventually, load, load_direct, pattern, put, store
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

KIB, MIB = 1 << 10, 1 << 20

QUOTA_MIB = int(os.environ.get("HCFS_QUOTA_MIB", "24"))
"""Of the eight writers' trial; 1024 is what users reported."""
EACH = 24
"""Objects that each of them stores."""


@pytest.fixture
def mount(make_mount: Callable[..., Mount]) -> Mount:
    return make_mount(options="lookup_grace=0,commit_interval=0.1")


def set_option(kv: Path, value: str, option: str = "quota") -> None:
    """As `hcfs ns set` does, durably, without the time that a command takes."""
    os.setxattr(kv, f"user.hcfs.{option}", value.encode())
    fd = os.open(kv, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def limited(mount: Mount, quota: str) -> Path:
    kv = mount.ns()
    set_option(kv, quota)
    return kv


def usage(mount: Mount) -> dict[str, Any]:
    return json.loads((mount.dir / ".hcfs" / "namespaces" / "kv.json").read_bytes())


def within(kv: Path) -> int:
    """Bytes that du counts."""
    done = subprocess.run(["du", "-s", "--block-size=1", kv], check=True, capture_output=True, text=True)
    return int(done.stdout.split()[0])


@pytest.mark.timeout(QUOTA_MIB * 2 + 120)
def test_eight_writers_push_three_times_the_quota(make_mount: Callable[..., Mount]) -> None:
    """Eight processes; another one looks on: never above the quota. du, ls, df and status agree, evictions are counted,
    nobody else's files go, and a remount evicts nothing.
    """
    quota, size = QUOTA_MIB * MIB, 3 * QUOTA_MIB * MIB // (8 * EACH) // 4096 * 4096
    mount = make_mount(size=QUOTA_MIB * MIB * 4, options="lookup_grace=0,commit_interval=0.2")
    kv = limited(mount, str(quota))
    put(mount.ns("other") / "bystander", pattern("bystander", MIB))
    done, above, looks = threading.Event(), [], 0

    def look() -> None:
        nonlocal looks
        while not done.is_set():
            now = usage(mount)
            if now["used_bytes"] + now["staged_bytes"] > quota:
                above.append(now)
            looks += 1
            time.sleep(0.005)

    def write(actor: Actor, writer: int) -> None:
        for number in range(EACH):
            actor.put(kv / f"{writer}-{number}", pattern(f"{writer}-{number}", size))

    looker = threading.Thread(target=look)
    looker.start()
    try:
        with ExitStack() as stack, ThreadPoolExecutor(8) as pool:
            actors = [stack.enter_context(Actor()) for _ in range(8)]
            for future in [pool.submit(write, actor, writer) for writer, actor in enumerate(actors)]:
                future.result()
    finally:
        done.set()
        looker.join()
    assert above == []
    assert looks > 20
    status = eventually(lambda: (now := mount.status())["staged_bytes"] == now["pending_bytes"] == 0 and now, "settled")
    names = os.listdir(kv)
    shown = status["namespaces"]["kv"]
    assert shown["quota_bytes"] == quota
    assert shown["evictions"] == status["counters"]["evictions"] == 8 * EACH - len(names) > 4 * EACH
    assert shown["objects"] == len(names)
    assert within(kv) == shown["used_bytes"] == sum(os.stat(kv / name).st_blocks for name in names) * 512 <= quota
    assert shown["used_bytes"] > 0.9 * quota
    space = os.statvfs(kv)
    assert (space.f_blocks - space.f_bfree) * 4096 == status["used_bytes"] == shown["used_bytes"] + MIB
    for name in names:
        assert load_direct(kv / name) == pattern(name, size)
    assert load(mount.dir / "other" / "bystander") == pattern("bystander", MIB)
    mount.umount()
    mount.mount()
    time.sleep(1.5)  # as long as the background needs to look
    assert sorted(os.listdir(kv)) == sorted(names)
    assert mount.status()["counters"]["evictions"] == 0
    mount.umount()
    hcfs("fsck", mount.source, "--data")


def test_edquot_is_what_every_program_meets(mount: Mount) -> None:
    """write(), close() and rename; cp says so; nothing stays."""
    kv = limited(mount, "1M")
    assert errno_of(store, kv / "x", pattern("x", 2 * MIB)) == "EDQUOT"
    fd = os.open(kv / "small.tmp", os.O_WRONLY | os.O_CREAT)
    put(kv / "open", pattern("open", MIB))
    reader = os.open(kv / "open", os.O_RDONLY)
    os.write(fd, b"a few bytes")
    assert errno_of(os.close, fd) == "EDQUOT"
    assert errno_of(os.rename, kv / "small.tmp", kv / "small") == "EDQUOT"
    done = subprocess.run(["cp", "/proc/self/maps", kv / "copy"], check=False, capture_output=True, text=True)
    assert "Disk quota exceeded" in done.stderr
    assert os.listdir(kv) == ["open"]
    os.close(reader)
    eventually(lambda: errno_of(put, kv / "small", b"a few bytes") == "ok", "the reader's file may go now")
    assert load(kv / "small") == b"a few bytes"
    assert usage(mount)["staged_bytes"] == 0


def test_changes_are_in_force_while_mounted_and_afterwards(mount: Mount) -> None:
    kv = mount.ns()
    for number in range(32):
        put(kv / f"{number}", pattern(number, MIB))
    assert usage(mount)["quota_bytes"] is None
    set_option(kv, "8M")
    eventually(lambda: usage(mount)["used_bytes"] == 8 * MIB, "the background evicts down to it")
    assert sorted(map(int, os.listdir(kv))) == list(range(24, 32))
    mount.kill()
    mount.mount()
    assert usage(mount)["quota_bytes"] == 8 * MIB
    for number in range(32, 40):
        put(kv / f"{number}", pattern(number, MIB))
        assert usage(mount)["used_bytes"] <= 8 * MIB
    assert sorted(map(int, os.listdir(kv))) == list(range(32, 40))
    set_option(kv, "none")
    put(kv / "large", pattern("large", 64 * MIB))
    assert len(os.listdir(kv)) == 9
    set_option(kv, "0")
    eventually(lambda: os.listdir(kv) == [], "no byte is allowed")
    assert errno_of(put, kv / "x", b"x") == "EDQUOT"
    put(kv / "empty", b"")
    os.removexattr(kv, "user.hcfs.quota")
    put(kv / "x", b"x")


def test_the_command_sets_and_shows_them(mount: Mount) -> None:
    hcfs("ns", "create", mount.dir, "kv", "--quota", "1T", "--salt-quota", "64M")
    assert usage(mount)["options"]["quota"] == usage(mount)["quota_bytes"] == 1 << 40
    assert usage(mount)["options"]["salt_quota"] == usage(mount)["salt_quota_bytes"] == 64 * MIB
    put(mount.dir / "kv" / "x", b"x")
    assert hcfs("ns", "list", mount.dir).stdout.splitlines()[1].split() == ["kv", "1", "4.0", "KiB", "1.0", "TiB"]
    hcfs("ns", "set", mount.dir, "kv", "--quota", "none", "--salt-quota", "0")
    assert os.getxattr(mount.dir / "kv", "user.hcfs.quota") == b"none"
    assert os.getxattr(mount.dir / "kv", "user.hcfs.salt_quota") == b"0"


def test_a_quota_below_what_is_being_written(mount: Mount) -> None:
    """The writer may publish what it has; it gets no more; then it is evicted like anything else."""
    kv = mount.ns()
    with Actor() as writer, Actor() as other:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_CREAT)
        writer.write_all(fd, bytes(4 * MIB))
        more = other.open(kv / "y", os.O_WRONLY | os.O_CREAT)
        other.write_all(more, bytes(4 * MIB))
        set_option(kv, "2M")
        assert errno_of(other.write_all, more, bytes(8 * MIB)) == "EDQUOT"
        assert errno_of(other.close, more) == "EDQUOT"
        writer.close(fd)
        eventually(lambda: usage(mount)["objects"] == 0 and usage(mount)["staged_bytes"] == 0, "evicted")
        assert errno_of(other.stat, kv / "y") == "ENOENT"


def test_one_tenant_does_not_push_out_another(mount: Mount) -> None:
    def chunk(number: int, salt: str) -> str:
        return f"m@0x01000100@0@{number:08x}@{salt}.data"

    kv = limited(mount, "64M")
    set_option(kv, "4M", "salt_quota")
    for number in range(4):
        put(kv / chunk(number, "quiet"), pattern(number, MIB))
    for number in range(40):
        put(kv / chunk(number, "loud"), pattern(number, MIB))
        salts = usage(mount)["salts"]
        assert salts["loud"] <= 4 * MIB
    assert salts == {"quiet": 4 * MIB, "loud": 4 * MIB}
    for number in range(4):
        assert load(kv / chunk(number, "quiet")) == pattern(number, MIB)
    assert errno_of(os.link, kv / chunk(0, "quiet"), kv / chunk(0, "loud")) == "EXDEV"
    subprocess.run(["mv", kv / chunk(0, "quiet"), kv / chunk(0, "loud")], check=True)
    assert load(kv / chunk(0, "loud")) == pattern(0, MIB)
    assert usage(mount)["salts"] == {"quiet": 3 * MIB, "loud": 4 * MIB}
    assert usage(mount)["salt_quota_bytes"] == 4 * MIB


def test_the_coldest_is_open_and_the_next_one_goes(mount: Mount) -> None:
    kv = limited(mount, "8M")
    put(kv / "coldest", pattern("coldest", MIB))
    fd = os.open(kv / "coldest", os.O_RDONLY)
    for number in range(20):
        put(kv / f"{number}", pattern(number, MIB))
        assert usage(mount)["used_bytes"] <= 8 * MIB
    assert load(kv / "coldest") == pattern("coldest", MIB)
    os.close(fd)


def test_statfs_is_the_devices(mount: Mount) -> None:
    kv = limited(mount, "8M")
    of_root, of_kv = os.statvfs(mount.dir), os.statvfs(kv)
    assert (of_root.f_blocks, of_root.f_bavail) == (of_kv.f_blocks, of_kv.f_bavail)
    assert of_kv.f_blocks * 4096 == mount.status()["capacity_bytes"] > 8 * MIB


def test_overwriting_one_object_over_and_over(mount: Mount) -> None:
    """By a temporary name and in place: old and new fit together, and nothing adds up."""
    kv = limited(mount, "3M")
    for number in range(30):
        put(kv / "x", pattern(number, MIB))
        store(kv / "y", pattern(number, MIB))
        assert usage(mount)["used_bytes"] <= 3 * MIB
    assert load(kv / "y") == pattern(29, MIB)
    eventually(lambda: usage(mount)["used_bytes"] == within(kv) and usage(mount)["staged_bytes"] == 0, "settled")


def test_options_change_under_running_io(mount: Mount) -> None:
    """Four writers and a reader while quotas and verification change all the time: nobody meets anything but EDQUOT,
    what is there is whole, and the last word counts."""
    kv, stop, problems = mount.ns(), threading.Event(), []

    def write(writer: int) -> None:
        number = 0
        while not stop.is_set():
            name = f"{writer}.{number % 5}"
            answer = errno_of(store, kv / name, pattern(name, MIB))
            if answer not in ("ok", "EDQUOT"):
                problems.append(f"store of {name}: {answer}")
            number += 1

    def read(reader: Actor) -> None:
        while not stop.is_set():
            for name in reader.listdir(kv):
                try:
                    data = reader.load_direct(kv / name)
                except OSError as error:
                    if error.errno != errno.ENOENT:
                        problems.append(f"load of {name}: {error}")
                else:
                    problems.extend([f"{name}: wrong bytes"] * (data != pattern(name, MIB)))

    with Actor() as reader:
        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
        threads.append(threading.Thread(target=read, args=(reader,)))
        for thread in threads:
            thread.start()
        for quota in ("8388608", "1048576", "none", "0", "67108864", "4194304") * 4:
            set_option(kv, quota)
            set_option(kv, "open" if quota == "none" else "read", "verify")
            time.sleep(0.05)
        stop.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert problems == []
    eventually(lambda: usage(mount)["used_bytes"] <= 4 * MIB, "the last quota is kept")
    assert usage(mount)["quota_bytes"] == 4 * MIB


def test_a_full_namespace_holds_up_nobody_elses_writes(make_mount: Callable[..., Mount]) -> None:
    """24 writers of one whose files were all just looked up, so that only the end of that could make room: some wait
    for it, the others get EDQUOT, and writers elsewhere and the administrator are served."""
    mount = make_mount(options="lookup_grace=30")
    kv, other = limited(mount, str(10 * MIB)), mount.ns("other")
    for name in "abcd":
        put(kv / name, pattern(name, 2300 * KIB))
        os.stat(kv / name)
    with ThreadPoolExecutor(25) as threads:
        writers = [threads.submit(errno_of, store, kv / f"{number}", b"y" * (3 * MIB)) for number in range(24)]
        eventually(lambda: sum(each.done() for each in writers) >= 12, "some are refused")
        served = threads.submit(lambda: [put(other / f"{number}", b"x" * MIB) for number in range(20)])
        try:
            served.result(15)
            # Everything is protected, so there is nothing to evict; the command says so while they wait. Its exec
            # closes what it inherits of this process, whose writes wait.
            evicted = json.loads(hcfs("evict", mount.dir, "kv", "--all", "--json").stdout)
            waiting = sum(not each.done() for each in writers)
        finally:
            set_option(kv, "none")
    answers = [each.result() for each in writers]
    assert 0 < waiting <= 8
    assert evicted["objects"] == 0
    assert evicted["kept"]["protected_objects"] == 4
    assert answers.count("EDQUOT") >= 12
    assert set(answers) == {"ok", "EDQUOT"}
