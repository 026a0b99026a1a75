"""Which names go to the origin: staging names and lock files stay on the device, whatever they were called before."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hcfs.cache import SYNC, SyncRecord
from hcfs.device import BufferPool, open_device
from hcfs.store import UnrecoveredStore
from lab.harness.actors import errno_of, eventually, load, store
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.origins.clients import WARNINGS, content, evict_all, is_clean, namespace, state, sync
from lab.harness.origins.s3 import S3
from lab.harness.origins.server import Asked, Fault

FRONT_ENDS = ("data_plane=on", "data_plane=off")
POLICIES = ("write-back", "write-through")


def refuse(asked: Asked, _: int) -> Fault | None:
    return Fault(status=503) if asked.method == "PUT" else None


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_staging_and_lock_names_stay_here(
    shared_mounts: Callable[[str], Mount], s3: S3, front_end: str, policy: str
) -> None:
    mount = shared_mounts(front_end)
    there, prefix = namespace(mount, s3, {}, write_policy=policy)
    store(there / "a.tmp", b"a")
    store(there / "b.tmp", b"b")
    store(there / "x.lock", b"locked")
    os.rename(there / "a.tmp", there / "a")
    os.rename(there / "b.tmp", there / "y.lock")
    with open(there / "c.tmp", "wb") as file:
        file.write(b"c")
        file.flush()
        os.rename(there / "c.tmp", there / "z.lock")
    eventually(lambda: not mount.status()["staged_objects"], "all is published")
    for name, value in (("x", b"locked"), ("y", b"b"), ("z", b"c")):
        assert state(there / f"{name}.lock") == "local-only"
        assert load(there / f"{name}.lock") == value
        assert hcfs("sync", mount.dir, there.name, "--overwrite", f"{name}.lock", check=False).returncode == 2
    assert sync(mount, there, "--wait")["objects"] == []
    assert mount.status()["dirty_bytes"] == 0
    os.unlink(there / "z.lock")
    assert s3.keys(prefix) == ["a"]
    assert {asked.path.rpartition("/")[2] for asked in s3.sent(prefix)} == {"a"}


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_move_between_names_that_go_out_and_that_do_not(
    shared_mounts: Callable[[str], Mount], s3: S3, front_end: str
) -> None:
    mount = shared_mounts(front_end)
    there, prefix = namespace(mount, s3, {}, write_policy="write-back")
    store(there / "s.tmp", b"published as a lock")
    os.rename(there / "s.tmp", there / "s.lock")
    assert errno_of(os.rename, there / "s.lock", there / "f") == "EXDEV"
    subprocess.run(["mv", there / "s.lock", there / "f"], check=True)
    sync(mount, there, "--wait")
    assert (s3.get(f"{prefix}/f"), state(there / "f")) == (b"published as a lock", "clean")
    assert errno_of(os.rename, there / "f", there / "f.lock") == "EXDEV"
    subprocess.run(["mv", there / "f", there / "f.lock"], check=True)
    assert state(there / "f.lock") == "local-only"
    assert errno_of(os.rename, there / "f.lock", there / "f.tmp") == "EXDEV"
    store(there / "g", b"g")
    sync(mount, there, "--wait")
    subprocess.run(["mv", there / "g", there / "g.tmp"], check=True)
    assert s3.keys(prefix) == []
    os.rename(there / "g.tmp", there / "g.lock")
    assert (os.listdir(there), load(there / "g.lock")) == (["f.lock", "g.lock"], b"g")
    assert (state(there / "g.lock"), state(there / "f.lock")) == ("local-only", "local-only")
    assert sync(mount, there, "--wait")["objects"] == []
    assert s3.keys(prefix) == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_nothing_has_a_second_name(shared_mounts: Callable[[str], Mount], s3: S3, front_end: str, policy: str) -> None:
    """Else its removal, or another content, at the origin would be taken for that of what the other name has."""
    mount = shared_mounts(front_end)
    there, prefix = namespace(mount, s3, {}, write_policy=policy)
    store(there / "s.tmp", b"precious")
    store(there / "x.lock", b"locked")
    for source in ("s.tmp", "x.lock"):
        for target in ("real", "other.tmp", "other.lock"):
            assert errno_of(os.link, there / source, there / target) == "EPERM"
    assert s3.sent(prefix) == []
    os.rename(there / "s.tmp", there / "real")
    sync(mount, there, "--wait")
    evict_all(mount, there)
    assert load(there / "real") == s3.get(f"{prefix}/real") == b"precious"


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_names_after_another_mount(make_mount: Callable[..., Mount], s3: S3, front_end: str) -> None:
    mount = make_mount(options=f"{front_end},lookup_grace=0", allow_warnings=WARNINGS)
    there, prefix = namespace(mount, s3, {}, write_policy="write-back")
    store(there / "n.tmp", b"secret")
    os.rename(there / "n.tmp", there / "n.lock")
    store(there / "marked.lock", b"marked")
    s3.faults = refuse
    store(there / "f.bin", content("f"))
    store(there / "removed.bin", content("removed"))
    eventually(lambda: len(s3.sent(prefix)) > 1, "it was tried again")
    # A file on its way goes there still, though files of such names are never published any more.
    os.setxattr(there, "user.hcfs.staging_patterns", b"*.bin")
    mount.umount()
    mark_as_dirty(mount.source, [there.name.encode(), b"marked.lock"])
    mount.mount()
    assert (state(there / "n.lock"), state(there / "marked.lock")) == ("local-only", "local-only")
    evict_all(mount, there)
    assert load(there / "f.bin") == content("f")
    os.unlink(there / "removed.bin")
    assert [each["path"] for each in sync(mount, there)["objects"]] == ["f.bin"]
    s3.fresh()
    eventually(lambda: is_clean(there / "f.bin"), "the next mount uploads it")
    assert s3.keys(prefix) == ["f.bin"]
    for name in ("n.lock", "marked.lock"):
        assert hcfs("sync", mount.dir, there.name, "--overwrite", name, check=False).returncode == 2
    assert s3.keys(prefix) == ["f.bin"]


def mark_as_dirty(source: Path, path: list[bytes]) -> None:
    """Give a file the mark of one that waits for its upload."""
    pool = BufferPool(16 << 20)
    device = open_device(str(source), pool, read_only=False)
    opened = UnrecoveredStore.open(device, pool).recover()
    oid = 1
    for name in path:
        found = opened.lookup(oid, name)
        assert found is not None
        oid = found
    opened.replace_xattrs(oid, {SYNC: SyncRecord("?").encode()})
    opened.commit()
    opened.close()
