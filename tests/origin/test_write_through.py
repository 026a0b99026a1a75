"""Write-through: a close or a rename returns when the origin has the file, or fails and publishes nothing."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.harness.actors import errno_of, eventually, load, put, store
from lab.harness.mounts import Mount
from lab.harness.origins.clients import WARNINGS, content, evict_all, is_clean, namespace, state, sync
from lab.harness.origins.s3 import S3
from lab.harness.origins.server import Asked, Fault, OriginServer

FRONT_ENDS = ("data_plane=on", "data_plane=off")


def staged(mount: Mount) -> bytes:
    return (mount.dir / ".hcfs" / "staged").read_bytes()


def through(mount: Mount, server: OriginServer, files: dict[str, bytes] | None = None) -> tuple[Path, str]:
    return namespace(mount, server, files or {}, write_policy="write-through")


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_close_returns_when_the_origin_has_it(
    shared_mounts: Callable[[str], Mount], server: OriginServer, front_end: str, tmp_path: Path
) -> None:
    mount = shared_mounts(front_end)
    there, prefix = through(mount, server, {"old": b"old"})
    store(there / "f", content("f"))
    assert server.get(f"{prefix}/f") == content("f")
    eventually(lambda: is_clean(there / "f"), "RELEASE has come")
    store(there / "x.tmp", b"x")
    assert server.keys(prefix) == ["f", "old"]
    os.rename(there / "x.tmp", there / "old")
    assert server.get(f"{prefix}/old") == load(there / "old") == b"x"
    assert state(there / "old") == "clean"
    store(there / "y.tmp", b"y")
    os.rename(there / "y.tmp", there / "y")
    assert server.get(f"{prefix}/y") == b"y"
    assert mount.status()["dirty_bytes"] == 0
    server.fresh()
    subprocess.run(["sh", "-c", f"printf hello > {there}/shell; : > {there}/empty"], check=True)
    assert (server.get(f"{prefix}/shell"), server.get(f"{prefix}/empty")) == (b"hello", b"")
    assert len(server.sent(prefix)) == 2
    (tmp_path / "source").write_bytes(content("source"))
    subprocess.run(["cp", "-p", tmp_path / "source", there / "copy"], check=True)
    assert server.get(f"{prefix}/copy") == content("source")
    eventually(lambda: not mount.status()["staged_objects"], "all is published")
    evict_all(mount, there)
    assert load(there / "copy") == content("source")
    os.unlink(there / "copy")
    assert server.get(f"{prefix}/copy") is None
    assert sync(mount, there)["objects"] == []


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_failure_publishes_nothing(
    shared_mounts: Callable[[str], Mount], server: OriginServer, front_end: str
) -> None:
    mount = shared_mounts(front_end)
    there, prefix = through(mount, server, {"f": b"former"})
    assert load(there / "f") == b"former"
    store(there / "waits.tmp", b"waits")
    server.faults = lambda asked, _: Fault(status=403) if asked.method == "PUT" else None
    assert errno_of(store, there / "f", b"new") == errno_of(store, there / "g", b"new") == "EIO"
    assert errno_of(os.rename, there / "waits.tmp", there / "f") == "EIO"
    eventually(lambda: b"/f\n" not in staged(mount) and b"/g\n" not in staged(mount), "the failed ones are gone")
    assert load(there / "f") == server.get(f"{prefix}/f") == b"former"
    assert errno_of(os.stat, there / "g") == "ENOENT"
    assert load(there / "waits.tmp") == b"waits"
    server.fresh()
    server.faults = lambda asked, number: Fault(status=503) if asked.method == "PUT" and number < 2 else None
    os.rename(there / "waits.tmp", there / "f")
    assert load(there / "f") == server.get(f"{prefix}/f") == b"waits"
    store(there / "g", b"again")
    assert server.get(f"{prefix}/g") == b"again"
    server.put(f"{prefix}/g", b"theirs")
    assert errno_of(store, there / "g", b"mine") == "EIO"  # somebody else wrote it
    assert server.get(f"{prefix}/g") == b"theirs"


@pytest.mark.parametrize("call", ["close", "rename", "unlink"])
def test_a_kill_between_origin_and_device(make_mount: Callable[..., Mount], server: OriginServer, call: str) -> None:
    """The origin has done it, and the daemon doesn't know: what is there counts at the next mount."""
    mount = make_mount(allow_warnings=WARNINGS)
    there, prefix = through(mount, server, {"other": b"other"})
    store(there / "f", b"former")
    store(there / "f.tmp", b"renamed")
    assert load(there / "other") == b"other"
    eventually(lambda: is_clean(there / "f"), "RELEASE has come")
    server.fresh()
    hold = threading.Event()

    def faults(asked: Asked, _: int) -> Fault | None:
        if asked.lists or any(earlier.method in ("PUT", "POST", "DELETE") for earlier in server.asked[:-1]):
            return Fault(hold=hold)
        return Fault(lost=True) if asked.method in ("PUT", "POST", "DELETE") else None

    server.faults = faults
    calls = {
        "close": lambda: store(there / "f", b"closed"),
        "rename": lambda: os.rename(there / "f.tmp", there / "f"),
        "unlink": lambda: os.unlink(there / "f"),
    }
    with ThreadPoolExecutor(1) as others:
        calling = others.submit(errno_of, calls[call])
        eventually(lambda: len(server.asked) == 2, "the origin has done it")
        mount.kill(signal.SIGKILL)
        assert calling.result(60) != "ok"
    hold.set()
    server.fresh()
    mount.mount()
    expected = {"close": b"closed", "rename": b"renamed", "unlink": None}[call]
    assert server.get(f"{prefix}/f") == expected
    if expected is None:
        assert sorted(os.listdir(there)) == ["other"]
    else:
        assert load(there / "f") == expected
    server.faults = lambda *_: Fault(status=503)
    assert load(there / "other") == b"other"  # which nobody doubts


def test_a_kill_after_the_content_before_was_published(make_mount: Callable[..., Mount], s3: S3) -> None:
    """A content that its close has uploaded, and that is published while the next one is on its way to the origin, is
    doubted as one that was there before."""
    mount = make_mount(allow_warnings=WARNINGS)
    there, prefix = through(mount, s3)
    kv = mount.ns("kv")
    store(there / "f.tmp", b"second")
    descriptor = os.open(there / "f", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"first")
    # It keeps the file open without a descriptor: what is closed is uploaded, and published when this is gone.
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    mapping = libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    os.close(descriptor)
    assert s3.get(f"{prefix}/f") == b"first"
    hold = threading.Event()
    s3.fresh()
    s3.faults = lambda asked, number: Fault(hold=hold, lost=not number, status=503 if number else 0)
    with ThreadPoolExecutor(1) as others:
        calling = others.submit(errno_of, os.rename, there / "f.tmp", there / "f")
        try:
            eventually(lambda: s3.sent(prefix), "the second is on its way")
            assert mount.status()["staged_objects"] == 2
            libc.munmap(ctypes.c_void_p(mapping), ctypes.c_size_t(4096))
            eventually(lambda: mount.status()["staged_objects"] == 1, "the first is published")
            other = os.open(kv, os.O_RDONLY)
            os.fsync(other)  # of everything; the kernel holds the other directory until the rename has answered
            os.close(other)
        finally:
            hold.set()
        eventually(lambda: s3.get(f"{prefix}/f") == b"second", "the origin has it")
        mount.kill(signal.SIGKILL)
        assert calling.result(60) != "ok"
    s3.fresh()
    mount.mount()
    assert load(there / "f") == b"second"


def test_what_was_dirty_does_not_follow_a_newer_content(shared: Mount, s3: S3) -> None:
    """A truncation by path is uploaded in the background; a close that comes meanwhile is the newer one."""
    there, prefix = through(shared, s3)
    store(there / "f", b"former content")
    hold = threading.Event()
    s3.fresh()
    s3.faults = lambda asked, number: Fault(hold=hold) if asked.method == "PUT" and number == 0 else None
    eventually(lambda: is_clean(there / "f"), "RELEASE has come")
    os.truncate(there / "f", 6)
    eventually(lambda: s3.sent(prefix), "it is on its way")
    assert state(there / "f") == "uploading"
    with ThreadPoolExecutor(1) as others:
        closing = others.submit(store, there / "f", b"newer")
        eventually(lambda: b"/f\n" in staged(shared), "the writer has begun")
        hold.set()
        closing.result(60)
    eventually(lambda: is_clean(there / "f"), "RELEASE has come")
    assert sync(shared, there, "--wait")["objects"] == []
    assert s3.get(f"{prefix}/f") == load(there / "f") == b"newer"


def test_a_rename_to_another_salt_whose_quota_is_used_up(shared: Mount, s3: S3) -> None:
    """Room is made in the salt, and the file is uploaded once."""
    there, prefix = through(shared, s3)
    os.setxattr(there, "user.hcfs.salt_quota", b"1M")
    names = [f"m@0x00000001@{number:08x}@tenant.data" for number in range(4)]
    for name in names:
        store(there / "unsalted.tmp", content(name, 300_000))
        os.rename(there / "unsalted.tmp", there / name)
        assert s3.get(f"{prefix}/{name}") == content(name, 300_000)
    assert len(s3.sent(prefix)) == 4
    assert [state(there / name) for name in names].count("clean") == 3
    assert load(there / names[0]) == content(names[0], 300_000)


def test_others_are_not_held_up(shared: Mount, s3: S3) -> None:
    """Closes that wait for a hanging origin hold up no close, rename or store of KV."""
    there, prefix = through(shared, s3)
    kv, hold = shared.ns("kv-through"), threading.Event()
    s3.faults = lambda asked, _: Fault(hold=hold) if asked.method == "PUT" else None
    writers = [threading.Thread(target=store, args=(there / f"{number}", b"x")) for number in range(20)]
    for writer in writers:
        writer.start()
    try:
        eventually(lambda: len(s3.sent(prefix)) == 20, "all closes wait")
        for number in range(20):
            put(kv / f"{number}.tmp", content(f"{number}", 50_000))
            os.rename(kv / f"{number}.tmp", kv / f"{number}")
        assert len(os.listdir(kv)) == 20
        assert all(writer.is_alive() for writer in writers)
    finally:
        hold.set()
    for writer in writers:
        writer.join(60)
    assert len(s3.keys(prefix)) == 20


def test_many_writers_of_the_same_names(shared: Mount, server: OriginServer) -> None:
    there, prefix = through(shared, server)
    names = ["a", "b", "c"]

    def write(seed: int) -> None:
        program = (
            "import os, random\n"
            f"dice = random.Random({seed})\n"
            "for number in range(12):\n"
            f"    path = {str(there)!r} + '/' + dice.choice({names!r})\n"
            f"    data = random.Random(f'{seed} {{number}}').randbytes(dice.choice((1, 5_000, 200_000)))\n"
            "    target = path if dice.random() < 0.5 else f'{path}.{os.getpid()}.tmp'\n"
            "    with open(target, 'wb') as file:\n"
            "        file.write(data)\n"
            "    if target != path:\n"
            "        os.rename(target, path)\n"
        )
        subprocess.run([sys.executable, "-I", "-c", program], check=True)

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    eventually(lambda: not shared.status()["staged_objects"], "all is published")
    here = {name: load(there / name) for name in os.listdir(there)}
    assert {key: server.get(f"{prefix}/{key}") for key in server.keys(prefix)} == here
    assert {state(there / name) for name in here} == {"clean"}
    evict_all(shared, there)
    assert {name: load(there / name) for name in here} == here
