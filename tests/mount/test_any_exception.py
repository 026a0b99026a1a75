"""Exceptions of any class from every seam below the handlers: the daemon lives, every request is answered, the log has
the traceback, and the mount can be unmounted. Handlers themselves: test_handler_exceptions.py."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.harness.actors import errno_of, eventually, load, load_direct, pattern, put
from lab.harness.cli import hcfs
from lab.harness.faulty import FaultyDaemon

CONTENT = pattern("any", 300_000)
LARGE = pattern("large", 3 << 20)

ORIGIN = {
    "the walk's listing": "hcfs.origin.directory:_Walk.run",
    "the client's listing": "hcfs.origin.directory:DirectoryClient.list",
    "the client's fetch": "hcfs.origin.directory:DirectoryClient.fetch",
    "bringing in line": "hcfs.remote.listing.relisting:Relisting.run",
    "the fetch's end": "hcfs.remote.fetching.ingest:Ingests._note_end",
    "staging": "hcfs.store.staged:Staged.write",
    "publishing": "hcfs.store.publishing:Publishing.publish",
    "whoever waits": "hcfs.remote.fetching.ingest:Ingest.wait",
    "the writer's upload": "hcfs.origin.directory_writer:DirectoryWriter.put",
    "the uploader": "hcfs.origin.uploader:OriginUploader.put",
    "the writer's removal": "hcfs.origin.directory_writer:DirectoryWriter.delete",
}
KINDS = ["", "KeyboardInterrupt", "RuntimeError"]
BACKGROUND = [
    "hcfs.store.durability:Durability.flush_touches",
    "hcfs.filesystem.versions.housekeeping:Housekeeping.reap",
    "hcfs.cache.cache:Cache.over_high_watermark",
    "hcfs.store.discard:Discards.run",
    "hcfs.daemon.scrubbing:Scrubbing.run",
    "hcfs.frontends.notices:Notifier._entry",
    "hcfs.frontends.notices:Notifier._inode",
    "hcfs.filesystem.versions.closing:LocalClosing._finish",
    "hcfs.filesystem.places.control:Control._execute",
]
DEVICE = ["read_into", "write", "flush"]


class Rig:
    """A daemon with namespaces: local, of a directory, and two that write there."""

    def __init__(self, top: Path, front_end: str, targets: list[str]) -> None:
        self.origin = top / "origin"
        self.origin.mkdir()
        (self.origin / "small").write_bytes(CONTENT)
        (self.origin / "large").write_bytes(LARGE)
        options = f"data_plane={front_end},lookup_grace=0,commit_interval=1h,discard=batch"
        self.daemon = FaultyDaemon(top, targets, options=options)
        self.kv = self.daemon.dir / "kv"
        self.kv.mkdir()

    def namespace(self, name: str, policy: str) -> Path:
        path = self.daemon.dir / name
        path.mkdir()
        os.setxattr(path, "user.hcfs.origin", str(self.origin).encode())
        os.setxattr(path, "user.hcfs.write_policy", policy.encode())
        return path

    def status(self) -> dict[str, Any]:
        status = json.loads((self.daemon.dir / ".hcfs" / "status.json").read_bytes())
        assert isinstance(status, dict)
        return status

    def serves(self) -> None:
        assert self.daemon.lives
        put(self.kv / "new", CONTENT)
        assert load_direct(self.kv / "new") == CONTENT
        os.unlink(self.kv / "new")


@pytest.fixture(params=["on", "off"])
def front_end(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


@pytest.fixture
def make_rig(tmp_path: Path, front_end: str) -> Iterator[Callable[..., Rig]]:
    rigs: list[Rig] = []

    def make(*targets: str) -> Rig:
        rigs.append(Rig(tmp_path, front_end, list(targets)))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.daemon.close()


def provoke(what: str, rig: Rig, written: Path, back: Path) -> str:
    """A call that comes to the seam; its errno."""
    if what in ("the writer's upload", "the uploader"):
        put(back / f"back{len(os.listdir(rig.origin))}", b"written in the background")
        return errno_of(put, written / "through", b"written through")
    if what == "the writer's removal":
        return errno_of(os.unlink, written / "small")
    if "listing" in what or what == "bringing in line":
        return errno_of(os.listdir, written)
    return errno_of(load, written / "small")


@pytest.mark.parametrize("what", ORIGIN)
def test_at_an_origin(make_rig: Callable[..., Rig], what: str) -> None:
    target = ORIGIN[what]
    rig = make_rig(target)
    daemon = rig.daemon
    for kind in KINDS:
        written = rig.namespace(f"through{kind}", "write-through")
        back = rig.namespace(f"back{kind}", "write-back")
        if "listing" not in what and what != "bringing in line":
            assert "small" in os.listdir(written)
            assert "small" in os.listdir(back)
        before = daemon.told(target)
        with daemon.failing(target, kind):
            answer = provoke(what, rig, written, back)
            daemon.wait_for_traceback(target, before)
            if "upload" in what:
                eventually(lambda name=back.name: rig.status()["origins"][name]["failed_objects"], "it is given up")
        if what != "the fetch's end":
            assert answer == "EIO"
        eventually(lambda path=written: errno_of(load, path / "small") != "EIO", "it is fetched anew")
        assert load(written / "large") == LARGE
        if what != "the writer's removal":
            assert load(written / "small") == CONTENT
        put(written / "through", b"again")
        rig.serves()
        if "upload" in what:
            assert errno_of(os.stat, back / "small") == "ok"
            assert hcfs("sync", daemon.dir, back.name, "--retry", check=False).returncode == 0
            hcfs("sync", daemon.dir, back.name, "--wait")
        for name in ("through", "small", "large"):
            (rig.origin / name).write_bytes({"small": CONTENT, "large": LARGE}.get(name, b""))
    daemon.umount()
    hcfs("fsck", daemon.image, "--data")


@pytest.mark.parametrize("what", ["the client's fetch", "staging", "publishing"])
def test_while_a_file_is_read_as_it_comes(make_rig: Callable[..., Rig], what: str) -> None:
    target = ORIGIN[what]
    rig = make_rig(target)
    path = rig.namespace("models", "read-only")
    assert "large" in os.listdir(path)
    for kind in KINDS:
        with rig.daemon.failing(target, kind):
            assert errno_of(load, path / "large") == "EIO"
        # An open that comes before the fetch that failed is forgotten shares its end.
        eventually(lambda: errno_of(load, path / "large") == "ok", "it is fetched anew")
        assert load(path / "large") == LARGE
        hcfs("evict", rig.daemon.dir, "models", "--all")
    rig.daemon.umount()


@pytest.mark.parametrize("kind", KINDS)
def test_in_the_background(make_rig: Callable[..., Rig], kind: str) -> None:
    rig = make_rig(*BACKGROUND)
    daemon = rig.daemon

    def close_after_a_mapped_write(path: Path) -> None:
        with open(path, "w+b") as file:
            file.truncate(4096)
            mapped = mmap.mmap(file.fileno(), 4096)
        mapped[:4] = b"late"
        mapped.close()

    provoked: dict[str, Callable[[], object]] = {
        "Scrubbing.run": lambda: hcfs("scrub", daemon.dir, check=False),
        "Notifier._entry": lambda: hcfs("evict", daemon.dir, "kv", "--all", check=False),
        "Notifier._inode": lambda: os.chmod(rig.kv / "x", 0o600),
        "LocalClosing._finish": lambda: close_after_a_mapped_write(rig.kv / "mapped"),
        "Control._execute": lambda: hcfs("evict", daemon.dir, "kv", "--all", check=False),
    }
    waited = ("flush_touches", "Scrubbing.run", "Notifier._inode", "LocalClosing._finish")
    for target in BACKGROUND:
        put(rig.kv / "x", CONTENT)
        before = daemon.told(target)
        with daemon.failing(target, kind):
            for words, call in provoked.items():
                if target.endswith(words) and not words.startswith("Scrubbing"):
                    call()
            if not target.endswith(waited):
                daemon.wait_for_traceback(target, before)
        rig.serves()
    assert hcfs("scrub", daemon.dir).returncode == 0
    daemon.umount()
    hcfs("fsck", daemon.image, "--data")


@pytest.mark.parametrize("kind", KINDS)
def test_a_mount_whose_tuning_fails_serves(front_end: str, kind: str, tmp_path: Path) -> None:
    """What follows the mount isn't what keeps it."""
    target = "hcfs.mountpoint.tuning:tune_mount"
    daemon = FaultyDaemon(tmp_path, [target], options=f"data_plane={front_end}", failing={target: kind})
    try:
        daemon.wait_for_traceback(target)
        os.mkdir(daemon.dir / "kv")
        put(daemon.dir / "kv" / "x", CONTENT)
        assert load_direct(daemon.dir / "kv" / "x") == CONTENT
        daemon.umount()
    finally:
        daemon.close()


@pytest.mark.parametrize("method", DEVICE)
@pytest.mark.parametrize("kind", KINDS)
def test_at_the_device(make_rig: Callable[..., Rig], method: str, kind: str) -> None:
    """A write that fails fails its file; a flush, the store, which is read-only from then on and says so."""
    target = f"hcfs.device.file:FileDevice.{method}"
    rig = make_rig(target)
    daemon, kv = rig.daemon, rig.kv
    put(kv / "x", CONTENT)
    directory = os.open(daemon.dir, os.O_RDONLY)
    try:
        os.fsync(directory)
        with daemon.failing(target, kind):
            if method == "read_into":
                assert errno_of(load_direct, kv / "x") == "EIO"
            elif method == "write":
                assert errno_of(put, kv / "y", CONTENT) == "EIO"
            else:
                put(kv / "z", CONTENT)
                assert errno_of(os.fsync, directory) in ("EIO", "EROFS")
        daemon.wait_for_traceback(target)
        assert errno_of(os.stat, kv / "y") == "ENOENT"
        assert load_direct(kv / "x") == CONTENT
        status = rig.status()
        if status["state"] == "ok":
            assert method != "flush"
            os.fsync(directory)
            rig.serves()
        else:
            assert "a fault in" in status["state_reason"]
            assert errno_of(os.fsync, directory) in ("EIO", "EROFS")
    finally:
        os.close(directory)
    daemon.umount()
    hcfs("fsck", daemon.image, "--data")
