"""Write-back: what is stored goes to a real S3 server in the background, and is kept until it is there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mount.damage import flip

from hcfs.origin import can_be_key
from lab.harness.actors import drop_pages, errno_of, eventually, load, load_direct, put, store
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.origins.clients import (
    ALLOWED,
    WARNINGS,
    content,
    evict_all,
    is_clean,
    namespace,
    origin_status,
    state,
    sync,
)
from lab.harness.origins.s3 import S3
from lab.harness.origins.server import Asked, Fault, OriginServer

FRONT_ENDS = ("data_plane=on", "data_plane=off")
BACK = {"write_policy": "write-back"}


def writes_only(fault: Fault) -> Callable[[Asked, int], Fault | None]:
    return lambda asked, _: fault if asked.method in ("PUT", "POST", "DELETE") else None


def back(mount: Mount, server: OriginServer, files: dict[str, bytes] | None = None, **options: str) -> tuple[Path, str]:
    return namespace(mount, server, files or {}, **BACK, **options)


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_files_life(shared_mounts: Callable[[str], Mount], server: OriginServer, front_end: str) -> None:
    mount = shared_mounts(front_end)
    there, prefix = back(mount, server, {"old": b"old", "d/cut": b"to be cut"})
    path, hold = there / "d" / "model é+&.bin", threading.Event()
    server.faults = lambda asked, _: Fault(hold=hold) if asked.method == "PUT" else None
    put(path, content("one"))
    eventually(lambda: state(path) == "uploading", "the upload has begun")
    assert load(path) == content("one")
    assert sorted(os.listdir(there / "d")) == ["cut", path.name]
    status = mount.status()
    assert status["dirty_bytes"] == status["namespaces"][there.name]["dirty_bytes"] == 171 * 4096
    assert os.getxattr(path, "user.hcfs.origin").decode().endswith(f"/{prefix}/d/{path.name}")
    hold.set()
    eventually(lambda: is_clean(path), "the origin has it")
    assert server.get(f"{prefix}/d/{path.name}") == content("one")
    ino = os.stat(path).st_ino
    evict_all(mount, there)
    assert state(path) == "remote"
    assert load(path) == content("one")
    assert os.stat(path).st_ino == ino
    # What is on the device, what only the origin has, and what is cut without being fetched are all overwritten.
    with open(path, "r+b") as file:
        file.seek(5)
        file.write(b"changed")
    with open(there / "old", "ab") as file:
        file.write(b" and more")
    gets = len(server.gets(f"{prefix}/d/cut"))
    store(there / "d" / "cut", b"cut")
    os.truncate(there / "old", 6)
    assert sync(mount, there, "--wait")["objects"] == []
    changed = content("one")[:5] + b"changed" + content("one")[12:]
    expected = {f"d/{path.name}": changed, "old": b"old an", "d/cut": b"cut"}
    assert {key: server.get(f"{prefix}/{key}") for key in server.keys(prefix)} == expected
    assert len(server.gets(f"{prefix}/d/cut")) == gets
    evict_all(mount, there)
    assert {key: load(there / key) for key in expected} == expected
    os.unlink(path)
    assert errno_of(os.stat, path) == "ENOENT"
    assert server.keys(prefix) == ["d/cut", "old"]
    assert errno_of(os.rmdir, there / "d") == "ENOTEMPTY"
    os.unlink(there / "d" / "cut")
    os.rmdir(there / "d")
    assert os.listdir(there) == ["old"]
    assert mount.status()["dirty_bytes"] == 0


def test_what_an_origin_cannot_have(shared: Mount, s3: S3) -> None:
    there, prefix = back(shared, s3, {"remote": b"remote"})
    kv = shared.ns("kv-names")
    put(kv / "chunk", b"kv")
    put(there / "f", b"f")
    sync(shared, there, "--wait")
    assert errno_of(store, os.fsencode(there) + b"/\xff", b"") == "EILSEQ"
    assert errno_of(store, there / "a\nb", b"") == errno_of(os.mkdir, there / "a\tb") == "EINVAL"
    assert errno_of(store, there / ("x" * 1025), b"") == "ENAMETOOLONG"
    assert errno_of(os.symlink, "f", there / "s") == errno_of(os.mknod, there / "n") == "EPERM"
    assert errno_of(os.link, there / "f", there / "g") == errno_of(os.link, there / "remote", there / "g") == "EPERM"
    for name in ("f", "remote"):
        assert errno_of(os.rename, there / name, there / "g") == "EXDEV"
        assert errno_of(os.rename, there / name, kv / "g") == errno_of(os.link, there / name, kv / "g") == "EXDEV"
    assert errno_of(os.rename, kv / "chunk", there / "c") == errno_of(os.link, kv / "chunk", there / "c") == "EXDEV"
    assert errno_of(os.open, there / "remote", os.O_WRONLY | os.O_CREAT | os.O_EXCL) == "EEXIST"
    for name in ("f", "remote"):
        subprocess.run(["mv", there / name, there / f"moved-{name}"], check=True)
    sync(shared, there, "--wait")
    assert sorted(os.listdir(there)) == s3.keys(prefix) == ["moved-f", "moved-remote"]
    assert load(there / "moved-remote") == b"remote"


@pytest.mark.parametrize("killed", ["dirty", "uploading", "uploaded"])
def test_a_killed_daemon_loses_nothing(make_mount: Callable[..., Mount], server: OriginServer, killed: str) -> None:
    mount = make_mount(allow_warnings=WARNINGS)
    there, prefix = back(mount, server, {"two": b"former"})
    hold = threading.Event()
    fault = {"dirty": Fault(status=503), "uploading": Fault(hold=hold, status=503), "uploaded": Fault(lost=True)}[
        killed
    ]
    server.faults = writes_only(fault)
    files = {"one": content("one"), "two": content("two"), "empty": b""}
    for name, value in files.items():
        put(there / name, value)
    directory = os.open(there, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    eventually(lambda: {asked.path[-3:] for asked in server.sent(prefix)} == {"one", "two", "pty"}, "all were tried")
    mount.kill(signal.SIGKILL)
    hold.set()
    server.fresh()
    server.faults = lambda asked, _: Fault(status=503) if asked.method in ("PUT", "HEAD") else None
    mount.mount()
    assert {state(there / name) for name in files} <= {"dirty", "uploading"}
    assert {name: load(there / name) for name in files} == files
    server.fresh()
    assert sync(mount, there, "--wait")["sync_failed"] == 0
    assert {key: server.get(f"{prefix}/{key}") for key in server.keys(prefix)} == files
    assert {state(there / name) for name in files} == {"clean"}
    mount.umount()
    server.fresh()
    mount.mount()
    assert {name: load(there / name) for name in files} == files
    assert server.sent(prefix) == []


def test_an_unmount_leaves_what_is_dirty_to_the_next_mount(make_mount: Callable[..., Mount], s3: S3) -> None:
    mount = make_mount(allow_warnings=WARNINGS)
    there, prefix = back(mount, s3)
    s3.faults = writes_only(Fault(status=503))
    put(there / "f", content("f"))
    eventually(lambda: len(s3.sent(prefix)) > 1, "it was tried again")
    mount.umount()
    s3.fresh()
    mount.mount("ro")
    assert state(there / "f") == "dirty"
    mount.umount()
    assert s3.sent(prefix) == []
    mount.mount(f"rw,{ALLOWED}")
    eventually(lambda: is_clean(there / "f"), "the next mount uploads it")
    assert s3.get(f"{prefix}/f") == content("f")


@pytest.mark.parametrize("bound", ["quota", "device"])
def test_dirty_files_are_never_evicted(make_mount: Callable[..., Mount], s3: S3, bound: str) -> None:
    mount = make_mount(size="32M", options="lookup_grace=0,upload_attempts=2", allow_warnings=WARNINGS)
    there, prefix = back(mount, s3, {}, **({"quota": "16M"} if bound == "quota" else {}))
    s3.faults = writes_only(Fault(status=503))
    kept: dict[str, bytes] = {}
    answer = "ok"
    while answer == "ok":
        name = f"f{len(kept)}"
        answer = errno_of(put, there / name, content(name, 2 << 20))
        if answer == "ok":
            kept[name] = content(name, 2 << 20)
    assert answer == {"quota": "EDQUOT", "device": "ENOSPC"}[bound]
    assert len(kept) >= 7
    evicted = hcfs("evict", mount.dir, there.name, "--all")
    assert evicted.stdout.startswith("0 objects evicted")
    eventually(lambda: sync(mount, there)["sync_failed"] == len(kept), "the attempts are used up")
    status = mount.status()
    assert status["dirty_bytes"] == status["used_bytes"] == len(kept) * (2 << 20)
    assert status["evictable_bytes"] == 0
    assert status["counters"]["upload_failures"] == len(kept)
    failed = origin_status(mount, there)["failed"]
    assert len(failed) == len(kept)
    assert "503" in failed[0]["reason"]
    assert errno_of(put, there / "more", content("more", 2 << 20)) == answer
    # Nothing changes it: neither the policy nor the namespace can go.
    assert (
        "doesn't have yet"
        in hcfs("ns", "set", mount.dir, there.name, "--write-policy", "read-only", check=False).stderr
    )
    assert hcfs("ns", "set", mount.dir, there.name, "--origin", "none", check=False).returncode == 1
    assert "--discard" in hcfs("ns", "rm", mount.dir, there.name, "--force", check=False).stderr
    os.fsync(fd := os.open(there, os.O_RDONLY))  # a failure is durable as any other change is
    os.close(fd)
    mount.kill(signal.SIGKILL)
    mount.mount()
    assert {each["state"] for each in sync(mount, there)["objects"]} == {"sync-failed"}
    assert {name: load(there / name) for name in kept} == kept
    s3.fresh()
    assert sync(mount, there, "--retry", "--wait")["objects"] == []
    assert {key: s3.get(f"{prefix}/{key}") for key in s3.keys(prefix)} == kept
    assert errno_of(put, there / "more", content("more", 2 << 20)) == "ok"  # now there is something to evict
    sync(mount, there, "--wait")
    hcfs("ns", "set", mount.dir, there.name, "--write-policy", "read-only")
    assert errno_of(put, there / "more", b"") == "EROFS"
    assert load(there / "more") == content("more", 2 << 20)


def test_the_last_content_wins(shared: Mount, server: OriginServer) -> None:
    """A file is overwritten, and removed, while an older content is on its way."""
    there, prefix = back(shared, server)
    path, hold = there / "f", threading.Event()
    server.faults = lambda asked, number: Fault(hold=hold) if asked.method == "PUT" and number == 0 else None
    put(path, b"first")
    eventually(lambda: server.sent(prefix), "the first is on its way")
    for number in range(5):
        (put if number % 2 else store)(path, f"content {number}".encode())
    assert state(path) == "dirty"
    assert load(path) == b"content 4"
    hold.set()
    eventually(lambda: is_clean(path), "the last one is there")
    assert server.get(f"{prefix}/f") == b"content 4"
    hold.clear()
    server.fresh()
    server.faults = lambda asked, number: Fault(hold=hold) if asked.method == "PUT" and number == 0 else None
    put(path, b"removed")
    eventually(lambda: server.sent(prefix), "it is on its way")
    removing = threading.Thread(target=os.unlink, args=(path,))
    removing.start()
    assert load(path) == b"removed"
    hold.set()
    removing.join(60)
    assert errno_of(os.stat, path) == "ENOENT"
    assert server.keys(prefix) == []
    put(path, b"again")
    sync(shared, there, "--wait")
    assert server.get(f"{prefix}/f") == b"again"


@pytest.mark.parametrize(
    "fault", [Fault(status=503), Fault(status=500), Fault(lost=True), Fault(status=200, cut_after=0)], ids=str
)
def test_errors_are_survived(shared: Mount, server: OriginServer, fault: Fault) -> None:
    """Lost answers too: what the origin has is then our own, and no conflict."""
    there, prefix = back(shared, server, {"f": b"former"})
    failures = origin_status(shared, there)["upload_failures"]
    assert load(there / "f") == b"former"
    server.faults = lambda asked, number: fault if asked.method == "PUT" and number < 3 else None
    put(there / "f", content("f"))
    put(there / "g", content("g"))
    assert sync(shared, there, "--wait")["sync_failed"] == 0
    assert (server.get(f"{prefix}/f"), server.get(f"{prefix}/g")) == (content("f"), content("g"))
    assert origin_status(shared, there)["upload_failures"] == failures
    evict_all(shared, there)
    assert (load(there / "f"), load(there / "g")) == (content("f"), content("g"))


def test_a_refusal_is_told_and_can_be_retried(shared: Mount, server: OriginServer) -> None:
    there, prefix = back(shared, server)
    server.faults = writes_only(Fault(status=403))
    put(there / "f", b"f")
    eventually(lambda: state(there / "f") == "sync-failed", "it is given up")
    answer = hcfs("sync", shared.dir, there.name, check=False)
    assert answer.returncode == 1
    assert "sync-failed" in answer.stdout
    assert "403" in answer.stdout
    assert len([line for line in shared.log_lines() if "WARNING" in line and f"{prefix}/f" in line]) == 1
    assert load(there / "f") == b"f"
    assert errno_of(os.unlink, there / "f") == "ok"  # the origin never had it
    put(there / "g", b"g")
    eventually(lambda: state(there / "g") == "sync-failed", "it is given up")
    server.fresh()
    answer = hcfs("sync", shared.dir, there.name, "--retry", "--wait")
    assert answer.stdout.startswith("0 files to be uploaded, 0 failed")
    assert server.keys(prefix) == ["g"]


def test_a_listing_drops_nothing_that_is_dirty(shared: Mount, s3: S3) -> None:
    """Not even one that is newer, has other content, or a directory under the same name; and what only the device has
    needs no origin to be read."""
    there, prefix = back(shared, s3, {"both": b"former", "cached": b"cached"}, origin_changes="revalidate=1")
    assert (load(there / "both"), load(there / "cached")) == (b"former", b"cached")
    s3.faults = writes_only(Fault(status=503))
    (there / "empty").mkdir()
    for name in ("both", "new", "inside"):
        put(there / name, f"mine {name}".encode())
    s3.put(f"{prefix}/both", b"theirs")
    s3.put(f"{prefix}/inside/of/it", b"theirs")
    s3.delete(f"{prefix}/cached")
    s3.put(f"{prefix}/more", b"more")
    listings = origin_status(shared, there)["listings"]
    eventually(lambda: "more" in os.listdir(there), "it is listed again")
    assert origin_status(shared, there)["listings"] > listings
    assert sorted(os.listdir(there)) == ["both", "empty", "inside", "more", "new"]
    s3.faults = lambda *_: Fault(status=503)
    time.sleep(1.1)
    for name in ("both", "new", "inside"):
        assert load(there / name) == f"mine {name}".encode()
        assert state(there / name) in ("dirty", "uploading")
    assert errno_of(load, there / "more") == "EIO"
    # Nothing can be said of other names: neither are they made, nor is a directory listed.
    assert errno_of(store, there / "unknown", b"") == errno_of(os.listdir, there) == "EIO"
    store(there / "new", b"mine new")
    s3.fresh()
    answer = sync(shared, there, "--wait")
    assert [(each["path"], each["state"]) for each in answer["objects"]] == [("both", "sync-failed")]
    assert (s3.get(f"{prefix}/new"), s3.get(f"{prefix}/inside")) == (b"mine new", b"mine inside")
    assert sync(shared, there, "--discard", "both")["objects"] == []
    assert load(there / "both") == b"theirs"


def test_a_removal_that_fails_removes_nothing(shared: Mount, server: OriginServer) -> None:
    there, prefix = back(shared, server, {"remote": b"remote"})
    put(there / "f", b"f")
    sync(shared, there, "--wait")
    server.faults = lambda asked, _: Fault(status=403) if asked.method in ("POST", "DELETE") else None
    for name in ("f", "remote"):
        assert errno_of(os.unlink, there / name) == "EIO"
        assert load(there / name) == name.encode()
    server.fresh()
    for name in ("f", "remote"):
        os.unlink(there / name)
    assert os.listdir(there) == server.keys(prefix) == []


def test_somebody_else_wrote_it(shared: Mount, server: OriginServer) -> None:
    there, prefix = back(shared, server, dict.fromkeys(("a", "b", "c", "gone"), b"former"))
    assert {load(there / name) for name in ("a", "b", "c", "gone")} == {b"former"}
    server.faults = writes_only(Fault(status=503))
    for name in ("a", "b", "c", "gone", "new"):
        put(there / name, f"mine {name}".encode())
    for name in ("a", "b", "new"):
        server.put(f"{prefix}/{name}", b"theirs")
    server.delete(f"{prefix}/gone")
    server.fresh()
    answer = sync(shared, there, "--wait")
    assert {each["path"]: each["state"] for each in answer["objects"]} == dict.fromkeys(
        ("a", "b", "new"), "sync-failed"
    )
    assert all("somebody else" in each["reason"] for each in answer["objects"])
    assert {server.get(f"{prefix}/{name}") for name in ("a", "b", "new")} == {b"theirs"}
    assert load(there / "a") == b"mine a"
    assert sync(shared, there, "--retry", "--wait")["sync_failed"] == 3  # it is still theirs
    answer = sync(shared, there, "--discard", "a", "--overwrite", "b", "--overwrite", "new", "--wait")
    assert answer["discarded"] == ["a"]
    assert answer["objects"] == []
    assert load(there / "a") == b"theirs"
    assert server.get(f"{prefix}/gone") == b"mine gone"  # nobody loses anything
    assert (server.get(f"{prefix}/b"), server.get(f"{prefix}/c"), server.get(f"{prefix}/new")) == (
        b"mine b",
        b"mine c",
        b"mine new",
    )
    assert hcfs("sync", shared.dir, there.name, "--discard", "b", check=False).returncode == 2


@pytest.mark.parametrize("name", ["f", "new"])
def test_somebody_else_writes_it_at_that_very_moment(shared: Mount, server: OriginServer, name: str) -> None:
    """After all that was looked at, and before the request: the origin itself refuses."""
    there, prefix = back(shared, server, {"f": b"former"})
    assert load(there / "f") == b"former"

    def meanwhile(asked: Asked, number: int) -> None:
        if asked.method == "PUT" and not number:
            server.put(f"{prefix}/{name}", b"theirs")

    server.faults = meanwhile
    put(there / name, b"mine")
    assert [each["state"] for each in sync(shared, there, "--wait")["objects"]] == ["sync-failed"]
    assert server.get(f"{prefix}/{name}") == b"theirs"
    assert len(server.sent(prefix)) == 1
    assert sync(shared, there, "--overwrite", name, "--wait")["objects"] == []
    assert server.get(f"{prefix}/{name}") == b"mine"


def test_a_wrong_path_undoes_nothing_because_nothing_was_done(shared: Mount, s3: S3) -> None:
    there, prefix = back(shared, s3)
    s3.faults = writes_only(Fault(status=403))
    for name in ("c", "g"):
        put(there / name, b"mine")
        eventually(lambda name=name: state(there / name) == "sync-failed", "it is given up")  # type: ignore[misc]
    for words in (["--overwrite", "c1", "--discard", "g"], ["--overwrite", "g", "--discard", "g"]):
        assert hcfs("sync", shared.dir, there.name, *words, check=False).returncode == 2
    assert load(there / "g") == b"mine"
    # Eviction tells what stays.
    evicted = ("evict", shared.dir, there.name, "--all")
    kept = json.loads(hcfs(*evicted, "--json").stdout)["kept"]
    assert (kept["unsynced_objects"], kept["unsynced_bytes"], kept["other_objects"]) == (2, 8192, 0)
    assert "2 objects stay, 8.0 KiB: unsynced (not at the origin yet" in hcfs(*evicted).stdout
    s3.fresh()
    answer = sync(shared, there, "--overwrite", "c", "--discard", "g", "--wait")
    assert (answer["objects"], answer["discarded"], s3.keys(prefix)) == ([], ["g"], ["c"])
    assert json.loads(hcfs(*evicted, "--json").stdout)["kept"]["unsynced_objects"] == 0


def test_a_key_has_its_prefix_too(shared: Mount, s3: S3) -> None:
    there, prefix = back(shared, s3)
    longest = 1024 - len(prefix) - 1
    assert errno_of(store, there / ("x" * (longest + 1)), b"x") == "EINVAL"
    store(there / ("x" * longest), b"x")
    assert sync(shared, there, "--wait")["objects"] == []
    assert can_be_key("x" * 255 + "/#22", "file:///directory")
    for name in ("x" * 256, "x" * 256 + "/y", ".hcfs-upload-x", ".hcfs-upload-x/y"):
        assert not can_be_key(name, "file:///directory")
        assert can_be_key(name, "s3://bucket")
    assert can_be_key("x" * 1024, "s3://bucket")
    assert not can_be_key("x" * 1021, "s3://bucket/a%20b/")
    assert can_be_key("x" * 1020, "s3://bucket/a%20b/")


def test_damaged_bytes_are_not_uploaded(make_mount: Callable[..., Mount], s3: S3) -> None:
    mount = make_mount(options="lookup_grace=0", allow_warnings=WARNINGS)
    there, prefix = back(mount, s3)
    hold = threading.Event()
    s3.faults = writes_only(Fault(hold=hold))
    names = ["0", "1", "2", "3", "bad"]
    for name in names:
        put(there / name, content(name))  # the last one waits for its turn
    flip(mount.source, content("bad"), 600_000)
    drop_pages(there / "bad")
    hold.set()
    eventually(lambda: state(there / "bad") == "sync-failed", "the damage is found")
    s3.fresh()
    answer = sync(mount, there, "--retry", "--wait")
    assert [(each["path"], each["state"]) for each in answer["objects"]] == [("bad", "sync-failed")]
    assert "damaged" in answer["objects"][0]["reason"]
    assert s3.keys(prefix) == names[:4]
    # It is there, what verifies can be read, and nothing drops it.
    assert errno_of(load_direct, there / "bad") == "EIO"
    evict_all(mount, there)
    fd = os.open(there / "bad", os.O_RDONLY)
    assert os.pread(fd, 1000, 0) == content("bad")[:1000]
    os.close(fd)
    assert mount.status()["quarantined_objects"] == 0
    mount.umount()
    for _ in range(2):
        assert hcfs("fsck", mount.source, "--data", "--repair", check=False).returncode == 4
    mount.mount()
    assert state(there / "bad") == "sync-failed"
    put(there / "bad", content("good"))
    sync(mount, there, "--wait")
    assert s3.get(f"{prefix}/bad") == content("good")


def test_large_files_go_in_parts(shared: Mount, server: OriginServer) -> None:
    there, prefix = back(shared, server, origin_changes="revalidate=0")
    large = content("large", 20_000_001)
    server.faults = lambda asked, number: Fault(status=503) if "partNumber=2" in asked.query and number < 3 else None
    put(there / "large", large)
    sync(shared, there, "--wait")
    assert server.get(f"{prefix}/large") == large
    assert len({asked.query for asked in server.sent(prefix) if "partNumber" in asked.query}) > 3
    assert [asked for asked in server.sent(prefix) if asked.method == "DELETE"]  # the first attempt left no part behind
    server.fresh()
    assert load(there / "large") == large
    assert server.gets(f"{prefix}/large") == []  # what is listed by now is what was uploaded
    with open(there / "large", "r+b") as file:
        file.write(b"changed")
    server.faults = writes_only(Fault(status=503))
    server.put(f"{prefix}/large", b"theirs")
    server.fresh()
    assert sync(shared, there, "--wait")["sync_failed"] == 1
    assert server.get(f"{prefix}/large") == b"theirs"
    os.unlink(there / "large")


def test_memory_is_bounded(make_mount: Callable[..., Mount], s3: S3) -> None:
    mount = make_mount(size="160M", options="memory=32M")
    there, prefix = back(mount, s3)
    put(there / "warm", content("warm", 17 << 20))
    sync(mount, there, "--wait")
    before = peak(mount.pid)
    put(there / "large", content("large", 96 << 20))
    assert sync(mount, there, "--wait")["objects"] == []
    assert peak(mount.pid) - before < 64 << 20
    assert s3.get(f"{prefix}/large") == content("large", 96 << 20)


def peak(pid: int) -> int:
    """Most bytes that a process ever had in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def test_many_writers(shared: Mount, server: OriginServer) -> None:
    there, prefix = back(shared, server)
    names = [f"d{number % 3}/f{number}" for number in range(12)]
    for number in range(3):
        os.mkdir(there / f"d{number}")
    server.faults = lambda asked, number: Fault(status=503) if asked.method == "PUT" and number % 5 == 2 else None

    def write(seed: int) -> None:
        program = (
            "import contextlib, os, random\n"
            f"dice = random.Random({seed})\n"
            "for number in range(25):\n"
            f"    path = {str(there)!r} + '/' + dice.choice({names!r})\n"
            "    if dice.random() < 0.2:\n"
            "        with contextlib.suppress(FileNotFoundError):\n"
            "            os.unlink(path)\n"
            "        continue\n"
            f"    data = random.Random(f'{seed} {{number}}').randbytes(dice.choice((0, 10, 70_000, 300_000)))\n"
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
    answer = sync(shared, there, "--wait")
    assert answer["objects"] == []
    here = {str(path.relative_to(there)): load(path) for path in there.rglob("f*")}
    assert {key: server.get(f"{prefix}/{key}") for key in server.keys(prefix)} == here
    evict_all(shared, there)
    assert {name: load(there / name) for name in here} == here


def test_a_directory_as_the_origin(shared: Mount, s3: S3, tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    (origin / "there").write_bytes(b"there")
    path = shared.dir / "directory-back"
    hcfs("ns", "create", shared.dir, path.name, "--origin", origin, "--write-policy", "write-back")
    (path / "d").mkdir()
    put(path / "d" / "f", content("f"))
    with open(path / "there", "ab") as file:
        file.write(b" still")
    sync(shared, path, "--wait")
    assert (origin / "d" / "f").read_bytes() == content("f")
    assert (origin / "there").read_bytes() == b"there still"
    evict_all(shared, path)
    assert load(path / "d" / "f") == content("f")
    os.unlink(path / "d" / "f")
    assert not (origin / "d" / "f").exists()


def test_options_are_shown_and_kept(make_mount: Callable[..., Mount], s3: S3) -> None:
    mount = make_mount(options="upload_attempts=3")
    there, _ = back(mount, s3)
    hcfs("ns", "set", mount.dir, there.name, "--write-policy", "write-through")
    assert mount.status()["namespaces"][there.name]["write_policy"] == "write-through"
    assert '"write-through"' in hcfs("ns", "show", mount.dir, there.name, "--json").stdout
    assert '"upload_attempts": 3' in (mount.dir / ".hcfs" / "config.json").read_text()
    mount.umount()
    mount.mount()
    assert os.getxattr(there, "user.hcfs.write_policy") == b"write-through"
    assert hcfs("sync", mount.dir, mount.ns("kv").name, check=False).returncode == 2
    put(there / "f", b"f")
    hcfs("ns", "rm", mount.dir, there.name, "--force")


def test_a_wait_that_others_end(shared: Mount, s3: S3) -> None:
    """Exit code 3: what it waited for isn't there."""
    there, _ = back(shared, s3)
    hold = threading.Event()
    s3.faults = writes_only(Fault(hold=hold))
    try:
        put(there / "f", content("f"))
        command = [sys.executable, "-m", "hcfs", "sync", str(shared.dir), there.name, "--wait", "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        (told,) = eventually(lambda: shared.status()["commands"], "it waits")
        with open(shared.dir / ".hcfs" / "control", "r+b", buffering=0) as control:
            control.write(json.dumps({"command": "stop", "id": told["id"]}).encode())
        said, complaint = process.communicate(timeout=60)
    finally:
        hold.set()
    assert process.returncode == 3, complaint
    assert "was stopped before its end" in complaint
    assert json.loads(said)["stopped"] is True
    sync(shared, there, "--wait")
