"""A namespace with an origin, on a real mount, against a real server of S3 and, where that may make a difference, of
Google Cloud Storage."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from mount.damage import flip

from lab.harness.actors import RENAME_NOREPLACE, drop_pages, errno_of, eventually, load, load_direct, put, renameat2
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.origins.clients import ALLOWED, Together, content, evict_all, namespace, openers, origin_status, state
from lab.harness.origins.s3 import S3
from lab.harness.origins.server import BUCKET, Fault, OriginServer

FILES = {"config.json": b"{}", "llama/model.safetensors": content("model"), "llama/empty": b""}
FRONT_ENDS = ("data_plane=on", "data_plane=off")


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_files_are_there_before_they_are_fetched(
    shared_mounts: Callable[[str], Mount], server: OriginServer, front_end: str
) -> None:
    mount = shared_mounts(front_end)
    weights, prefix = namespace(mount, server, FILES)
    found = subprocess.run(["find", weights, "-type", "f", "-printf", "%P %s %b %m\n"], capture_output=True, text=True)
    assert sorted(found.stdout.splitlines()) == [
        "config.json 2 0 444",
        "llama/empty 0 0 444",
        "llama/model.safetensors 700001 0 444",
    ]
    model = weights / "llama" / "model.safetensors"
    assert state(model) == "remote"
    assert os.getxattr(model, "user.hcfs.origin").decode() == f"{server.url(prefix)}/llama/model.safetensors"
    assert errno_of(os.stat, weights / "absent") == errno_of(os.stat, weights / "llama" / "absent") == "ENOENT"
    # An empty object may be an empty folder's mark, so one is asked for.
    heads = [asked.path.removeprefix(f"/{BUCKET}/{prefix}/") for asked in server.asked if not asked.lists]
    assert heads == ["llama/empty"]
    before = os.stat(model)
    for key, expected in FILES.items():
        assert load(weights / key) == expected
        assert state(weights / key) == "clean"
    after = os.stat(model)
    assert (after.st_ino, after.st_size, after.st_mtime) == (before.st_ino, before.st_size, before.st_mtime)
    assert origin_status(mount, weights)["ingests"] == len(FILES)
    mount.umount()
    mount.mount()
    server.fresh()
    server.faults = lambda *_: Fault(status=503)
    assert load(model) == FILES["llama/model.safetensors"]  # what is cached needs no origin
    assert server.asked == []


def test_cp_and_tar_and_a_listing_with_what_is_evicted(shared: Mount, s3: S3, tmp_path: Path) -> None:
    """cp compares inode numbers before and after its open, and the first fetch comes between the two."""
    mount = shared
    weights, _ = namespace(mount, s3, {f"d{number}/f{number}": content(str(number), 9_999) for number in range(12)})
    copies = [subprocess.Popen(["cp", "-a", weights, tmp_path / f"copy{number}"]) for number in range(3)]
    assert [copy.wait() for copy in copies] == [0, 0, 0]
    evict_all(mount, weights)
    assert sorted(os.listdir(weights)) == sorted(f"d{number}" for number in range(12))
    assert os.listdir(weights / "d3") == ["f3"]
    subprocess.run(["diff", "-r", weights, tmp_path / "copy1"], check=True)
    subprocess.run(["tar", "cf", tmp_path / "tar", "-C", weights, "."], check=True)
    assert origin_status(mount, weights)["ingests"] == 24


def test_lmcache_is_not_led_to_what_it_cannot_store_in(shared: Mount, s3: S3) -> None:
    weights, _ = namespace(shared, s3, FILES)
    refused = hcfs("lmcache-config", shared.dir, weights.name, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is read-only, so LMCache can store nothing in it" in refused.stderr
    writable, _ = namespace(shared, s3, FILES, write_policy="write-back")
    assert hcfs("lmcache-config", shared.dir, writable.name).returncode == 0


def test_nothing_can_be_changed_there(shared: Mount, s3: S3) -> None:
    mount = shared
    weights, _ = namespace(mount, s3, FILES)
    there, kv = weights / "config.json", mount.ns("kv")
    put(kv / "chunk", b"kv")
    for _ in ("remote", "cached"):
        calls = {
            "create": (os.open, weights / "new", os.O_WRONLY | os.O_CREAT),
            "write": (os.open, there, os.O_WRONLY),
            "truncate": (os.truncate, there, 0),
            "unlink": (os.unlink, there),
            "mkdir": (os.mkdir, weights / "d"),
            "rmdir": (os.rmdir, weights / "llama"),
            "symlink": (os.symlink, "x", weights / "s"),
            "mknod": (os.mknod, weights / "n"),
            "chmod": (os.chmod, there, 0o600),
            "utime": (os.utime, there),
            "setxattr": (os.setxattr, there, "user.mine", b"1"),
            "link": (os.link, there, weights / "l"),
            "rename": (os.rename, there, weights / "r"),
        }
        answers = {name: errno_of(*call) for name, call in calls.items()}
        assert answers == dict.fromkeys(calls, "EROFS")
        assert errno_of(os.rename, there, kv / "r") == errno_of(os.rename, kv / "chunk", weights / "c") == "EXDEV"
        assert errno_of(renameat2, kv / "chunk", weights / "c", RENAME_NOREPLACE) == "EXDEV"
        assert errno_of(os.link, there, kv / "l") == errno_of(os.link, kv / "chunk", weights / "l") == "EXDEV"
        load(there)
    assert os.listdir(kv) == ["chunk"]


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_one_fetch_for_all(shared_mounts: Callable[[str], Mount], server: OriginServer, front_end: str) -> None:
    mount = shared_mounts(front_end)
    weights, prefix = namespace(mount, server, FILES)
    model = weights / "llama" / "model.safetensors"
    for _ in range(3):
        server.fresh()
        assert openers(model, 64).join() == [FILES["llama/model.safetensors"]] * 64
        assert len(server.gets(f"{prefix}/llama/model.safetensors")) == 1
        evict_all(mount, weights)
        assert state(model) == "remote"
    assert origin_status(mount, weights)["ingests"] == 3


def test_an_error_reaches_everybody_and_is_not_kept(shared: Mount, server: OriginServer) -> None:
    mount = shared
    weights, prefix = namespace(mount, server, FILES)
    model = weights / "llama" / "model.safetensors"
    os.stat(model)
    server.faults = lambda *_: Fault(status=503)
    assert openers(model, 24).join() == ["EIO"] * 24
    named = [line for line in mount.log_lines() if f"{prefix}/llama/model.safetensors isn't fetched" in line]
    assert len(named) == 1
    assert "503" in named[0]
    assert origin_status(mount, weights)["failures"] == 1
    assert "503" in origin_status(mount, weights)["last_error"]
    assert 0 <= origin_status(mount, weights)["last_error_s"] < 60
    server.faults = lambda *_: None
    assert load(model) == FILES["llama/model.safetensors"]


def test_an_origin_that_cannot_be_listed_makes_nothing_absent(shared: Mount, server: OriginServer) -> None:
    mount = shared
    server.faults = lambda *_: Fault(status=500)
    weights, _ = namespace(mount, server, FILES)
    assert errno_of(os.stat, weights / "config.json") == errno_of(os.listdir, weights) == "EIO"
    server.faults = lambda *_: None
    assert load(weights / "config.json") == b"{}"


def test_wrong_bytes_are_fetched_again_or_refused(shared: Mount, server: OriginServer) -> None:
    mount = shared
    weights, _ = namespace(mount, server, FILES)
    model = weights / "llama" / "model.safetensors"
    os.stat(model)
    server.faults = lambda *_: Fault(flip=500_000)
    assert errno_of(load, model) == "EIO"
    usage = mount.status()["namespaces"][weights.name]
    assert usage["objects"] == usage["staged_bytes"] == 0
    assert mount.status()["staged_objects"] == 0
    server.fresh()
    server.faults = lambda asked, number: Fault(flip=500_000) if number == 0 and not asked.lists else None
    assert load_direct(model) == FILES["llama/model.safetensors"]


def test_removed_at_the_origin_since_it_was_listed(shared: Mount, server: OriginServer) -> None:
    mount = shared
    weights, prefix = namespace(mount, server, FILES)
    assert os.stat(weights / "config.json").st_size == 2
    server.delete(f"{prefix}/config.json")
    assert errno_of(load, weights / "config.json") == "ENOENT"
    eventually(lambda: errno_of(os.stat, weights / "config.json") == "ENOENT", "the kernel is told")
    server.put(f"{prefix}/llama/model.safetensors", b"replaced")
    assert load(weights / "llama" / "model.safetensors") == b"replaced"


def test_what_is_cached_counts_for_ever_or_for_so_long(shared: Mount, server: OriginServer) -> None:
    mount = shared
    fixed, fixed_prefix = namespace(mount, server, FILES, name=f"fixed-{server.scheme}")
    fresh, fresh_prefix = namespace(mount, server, FILES, origin_changes="revalidate=0", name=f"fresh-{server.scheme}")
    for directory in (fixed, fresh):
        assert load(directory / "config.json") == b"{}"
    for prefix in (fixed_prefix, fresh_prefix):
        server.put(f"{prefix}/config.json", b"[1]")
    assert load(fixed / "config.json") == b"{}"
    assert load(fresh / "config.json") == b"[1]"
    evict_all(mount, fixed)
    assert load(fixed / "config.json") == b"[1]"
    with open(fresh / "config.json", "rb") as held:
        server.delete(f"{fresh_prefix}/config.json")
        server.delete(f"{fresh_prefix}/llama/empty")
        server.delete(f"{fresh_prefix}/llama/model.safetensors")
        assert errno_of(load, fresh / "config.json") == "ENOENT"
        assert os.listdir(fresh) == []
        assert held.read() == b"[1]"
    assert load(fixed / "config.json") == b"[1]"
    mount.umount()
    mount.mount()
    assert load(fixed / "config.json") == b"[1]"
    server.put(f"{fresh_prefix}/config.json", b"2")
    assert load(fresh / "config.json") == b"2"


@pytest.mark.parametrize("verify", ["read", "open"])
def test_a_quarantined_object_is_fetched_again(shared: Mount, s3: S3, verify: str) -> None:
    mount = shared
    expected = content(f"quarantined {verify}")
    weights, _ = namespace(mount, s3, {"model": expected}, verify=verify)
    model = weights / "model"
    assert load(model) == expected
    flip(mount.source, expected, 300_000)
    drop_pages(model)
    if verify == "read":
        assert errno_of(load_direct, model) == "EIO"
    assert load_direct(model) == load(model) == expected
    assert origin_status(mount, weights)["ingests"] == 2


def test_a_directory_as_origin(shared: Mount, tmp_path: Path) -> None:
    source = tmp_path / "a hub"
    (source / "snapshots").mkdir(parents=True)
    (source / "blob").write_bytes(content("blob"))
    (source / "snapshots" / "model.safetensors").symlink_to("../blob")
    mount = shared
    hcfs("ns", "create", mount.dir, "plain", "--origin", source)
    hcfs("ns", "create", mount.dir, "url", "--origin", f"file://{source}".replace(" ", "%20"))
    for name in ("plain", "url"):
        assert load(mount.dir / name / "snapshots" / "model.safetensors") == content("blob")
        subprocess.run(["diff", "-r", source, mount.dir / name], check=True)
    (source / "later").write_bytes(b"later")
    shutil.move(source, tmp_path / "moved")
    assert load(mount.dir / "plain" / "blob") == content("blob")
    assert errno_of(os.stat, mount.dir / "plain" / "later") in ("ENOENT", "EIO")
    evict_all(mount, mount.dir / "url")


def test_quotas_and_room(shared: Mount, s3: S3) -> None:
    """Files beyond the quota push others of the namespace out; one that is larger than it is refused with EDQUOT."""
    mount = shared
    files = {f"{number}": content(f"quota {number}", 1 << 20) for number in range(5)} | {"big": content("b", 5 << 20)}
    weights, _ = namespace(mount, s3, files, quota="3M")
    for number in range(5):
        assert load(weights / f"{number}") == files[f"{number}"]
    assert mount.status()["namespaces"][weights.name]["used_bytes"] <= 3 << 20
    assert errno_of(load, weights / "big") == "EDQUOT"
    assert mount.status()["staged_objects"] == 0


def test_evictions_beside_opens(shared: Mount, s3: S3) -> None:
    """Files push each other out all the while: every open gets its own, whole. The quota has room for what is open and
    what is fetched at the same time, which is the least."""
    mount = shared
    files = {f"{number}": content(f"churn {number}", 100_000) for number in range(24)}
    weights, _ = namespace(mount, s3, files, quota="1M", origin_changes="revalidate=1")

    def churn() -> int:
        names = random.Random(threading.get_ident()).choices(list(files), k=40)
        return sum(load(weights / name) == files[name] and os.stat(weights / name).st_size == 100_000 for name in names)

    assert Together(4, churn).join() == [40] * 4
    assert origin_status(mount, weights)["ingests"] > 24


def test_read_only_mounts_and_removed_namespaces(make_mount: Callable[..., Mount], s3: S3) -> None:
    mount = make_mount()
    weights, prefix = namespace(mount, s3, FILES)
    assert load(weights / "config.json") == b"{}"
    mount.umount()
    mount.mount("ro")
    s3.fresh()
    assert sorted(os.listdir(weights)) == ["config.json", "llama"]
    assert errno_of(os.stat, weights / "llama" / "empty") == "ENOENT"
    assert load(weights / "config.json") == b"{}"
    assert state(weights / "config.json") == "clean"
    assert os.getxattr(weights / "config.json", "user.hcfs.origin").decode() == f"{s3.url(prefix)}/config.json"
    assert s3.asked == []
    mount.umount()
    mount.mount(f"rw,{ALLOWED}")
    assert hcfs("ns", "rm", mount.dir, weights.name, check=False).returncode == 1
    hcfs("ns", "rm", mount.dir, weights.name, "--force")
    assert os.listdir(mount.dir) == [".hcfs"]
    assert mount.status()["origins"] == {}


def test_no_secret_is_said_anywhere(shared: Mount, server: OriginServer) -> None:
    mount = shared
    weights, _ = namespace(mount, server, FILES)
    os.stat(weights / "config.json")
    server.faults = lambda *_: Fault(status=403)
    assert errno_of(load, weights / "config.json") == "EIO"
    assert errno_of(os.listdir, namespace(mount, server, FILES)[0]) == "EIO"
    said = mount.log.read_text() + (mount.dir / ".hcfs" / "status.json").read_text()
    said += (mount.dir / ".hcfs" / "config.json").read_text() + (mount.dir / ".hcfs" / "metrics").read_text()
    assert "isn't fetched" in said
    for secret in server.secrets:
        assert secret not in said
    assert any(server.secrets[-1] in str(asked.headers) for asked in server.asked)  # they are in use
