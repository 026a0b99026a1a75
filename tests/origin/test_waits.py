"""While an origin is slow, cut off or gone: who waits, who doesn't, and what is there afterwards."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from lab.harness.actors import errno_of, eventually, load, put
from lab.harness.mounts import Mount
from lab.harness.origins.clients import WARNINGS, Together, content, evict_all, namespace, openers, origin_status, state
from lab.harness.origins.s3 import S3
from lab.harness.origins.server import Fault

FILES = {"config.json": b"{}", "model": content("model", 3_000_001)}


@pytest.mark.parametrize("front_end", ["data_plane=on", "data_plane=off"])
def test_others_are_not_held_up(shared_mounts: Callable[[str], Mount], s3: S3, front_end: str) -> None:
    """More openers and lookups wait than there are threads for anything else; KV is stored, read, renamed and closed
    meanwhile, and the other names of the same directories are answered."""
    mount = shared_mounts(front_end)
    weights, _ = namespace(mount, s3, FILES | {"other": b"other"})
    assert load(weights / "other") == b"other"
    stuck, _ = namespace(mount, s3, FILES)
    hold = threading.Event()
    s3.faults = lambda asked, _: Fault(hold=hold) if asked.lists or asked.path.endswith("/model") else None
    try:
        opening = openers(weights / "model", 20)
        looking = Together(20, lambda: os.stat(stuck / "config.json").st_size)
        eventually(lambda: origin_status(mount, weights)["ingesting"], "the fetch has begun")
        kv = mount.ns("kv-beside")
        for number in range(20):
            put(kv / f"{number}", content(f"kv {number}", 50_000))
            assert load(kv / f"{number}") == content(f"kv {number}", 50_000)
        assert len(os.listdir(kv)) == 20
        assert load(weights / "other") == b"other"
        assert load(weights / "config.json") == b"{}"
        assert os.stat(weights / "model").st_size == len(FILES["model"])
        assert origin_status(mount, weights)["ingesting"][0]["size"] == len(FILES["model"])
        assert opening.answers == looking.answers == []
    finally:
        hold.set()
    assert opening.join() == [FILES["model"]] * 20
    assert looking.join() == [2] * 20


@pytest.mark.parametrize("front_end", ["data_plane=on", "data_plane=off"])
def test_a_lookup_that_waits_stops_neither_its_directory_nor_notices(
    make_mount: Callable[..., Mount], s3: S3, front_end: str
) -> None:
    """Names that need no listing are answered beside lookups that wait for one, if the front end takes lookups of one
    directory in parallel, which pyfuse3 doesn't. A notice about a name there waits for them; those of other directories
    are told at once."""
    mount = make_mount(options=f"{front_end},lookup_grace=0")
    weights, _ = namespace(mount, s3, {"a": b"a", "b": b"b"})
    kv = mount.ns("kv")
    put(kv / "chunk", b"chunk")
    assert (load(weights / "a"), load(weights / "b")) == (b"a", b"b")
    mount.umount()
    mount.mount()
    assert os.stat(kv / "chunk").st_size == 5
    hold = threading.Event()
    s3.fresh()
    s3.faults = lambda asked, _: Fault(hold=hold) if asked.lists else None
    try:
        looking = Together(5, lambda: os.stat(weights / "absent"))
        eventually(lambda: s3.asked, "the origin is asked")
        if front_end == "data_plane=on":
            assert (load(weights / "a"), load(weights / "b")) == (b"a", b"b")
        evict_all(mount, weights)
        evict_all(mount, kv)
        eventually(lambda: errno_of(os.stat, kv / "chunk") == "ENOENT", "the kernel is told of the eviction")
        assert looking.answers == []
    finally:
        hold.set()
    assert looking.join() == ["ENOENT"] * 5
    assert (load(weights / "a"), load(weights / "b")) == (b"a", b"b")


@pytest.mark.parametrize("killed", ["daemon", "origin"])
def test_half_a_download_is_no_file(make_mount: Callable[..., Mount], s3: S3, killed: str) -> None:
    """ComfyUI#6744: killed at 50 %, the name leads to nothing on the device, and a retry ends equal to the origin."""
    mount = make_mount(allow_warnings=WARNINGS)
    weights, _ = namespace(mount, s3, FILES)
    os.stat(weights / "model")
    s3.faults = lambda asked, _: None if asked.lists else Fault(slow=0.05)
    opening = openers(weights / "model", 3)
    eventually(lambda: any(each["bytes"] for each in origin_status(mount, weights)["ingesting"]), "a part has come")
    if killed == "daemon":
        mount.kill(signal.SIGKILL)
        assert set(opening.join()) <= {"ENOTCONN", "ECONNABORTED"}
        s3.fresh()
        mount.mount()
    else:
        s3.faults = lambda *_: Fault(status=503, cut_after=0)
        s3.cut()
        assert opening.join() == ["EIO"] * 3
        s3.fresh()
    # Who read just then was told a moment before.
    eventually(lambda: not origin_status(mount, weights)["ingesting"], "the attempt has been given up")
    assert mount.status()["objects"] == mount.status()["staged_objects"] == 0
    assert mount.status()["used_bytes"] == mount.status()["staged_bytes"] == 0
    assert state(weights / "model") == "remote"
    assert load(weights / "model") == FILES["model"]


def test_an_unmount_lets_waiters_go(make_mount: Callable[..., Mount], s3: S3) -> None:
    mount = make_mount()
    weights, _ = namespace(mount, s3, FILES)
    os.stat(weights / "model")
    s3.faults = lambda asked, _: None if asked.lists else Fault(slow=0.05)
    opening = openers(weights / "model", 3)
    eventually(lambda: origin_status(mount, weights)["ingesting"], "the fetch has begun")
    daemon = mount.pid
    os.kill(daemon, signal.SIGTERM)
    assert set(opening.join()) <= {"EIO", "ENOTCONN", "ECONNABORTED"}
    eventually(lambda: not os.path.exists(f"/proc/{daemon}"), "the daemon has ended")
    s3.fresh()
    mount.mount()
    assert mount.status()["staged_objects"] == 0
    assert errno_of(load, weights / "model") == "ok"
