"""A namespace without an origin has no way to the network, and doesn't come by one while it holds anything."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from mount.damage import flip

from lab.harness.actors import drop_pages, errno_of, load, load_direct, pattern, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.origins.clients import WARNINGS, evict_all, namespace
from lab.harness.origins.s3 import S3
from lab.harness.origins.server import BUCKET

SIZE = 300_000


def loaded_libraries(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def work_on_kv(mount: Mount, kv: Path) -> None:
    """Store, read, rename, link, leave unfinished, damage, quarantine, scrub and evict."""
    for number in range(4):
        put(kv / f"{number}", pattern(f"local {number}", SIZE))
    os.rename(kv / "0", kv / "renamed")
    os.link(kv / "1", kv / "linked")
    with open(kv / "left.tmp", "wb") as left:
        left.write(b"unfinished")
    flip(mount.source, pattern("local 2", SIZE), 100_000)
    drop_pages(kv / "2")
    assert errno_of(load_direct, kv / "2") == "EIO"
    hcfs("scrub", mount.dir, check=False)
    evict_all(mount, kv)
    put(kv / "after", b"after")
    os.unlink(kv / "after")


def test_no_request_for_kv_beside_a_namespace_with_an_origin(make_mount: Callable[..., Mount], s3: S3) -> None:
    mount = make_mount(options="lookup_grace=0", allow_warnings=(*WARNINGS, r"scrub"))
    weights, prefix = namespace(mount, s3, {"model": b"model"})
    assert load(weights / "model") == b"model"
    s3.fresh()
    work_on_kv(mount, mount.ns("kv"))
    assert s3.asked == []
    evict_all(mount, weights)
    assert load(weights / "model") == b"model"
    assert [(asked.method, asked.path) for asked in s3.asked if not asked.lists] == [
        ("GET", f"/{BUCKET}/{prefix}/model")
    ]
    assert {asked.method for asked in s3.asked} == {"GET"}


def test_a_mount_without_origins_loads_no_network_library(make_mount: Callable[..., Mount], s3: S3) -> None:
    mount = make_mount(options="lookup_grace=0", allow_warnings=(*WARNINGS, r"scrub"))
    work_on_kv(mount, mount.ns("kv"))
    assert "obstore" not in loaded_libraries(mount.pid)
    weights, _ = namespace(mount, s3, {"model": b"model"})
    assert load(weights / "model") == b"model"
    assert "obstore" in loaded_libraries(mount.pid)


def test_an_origin_comes_and_goes_only_in_an_empty_namespace(make_mount: Callable[..., Mount], s3: S3) -> None:
    mount = make_mount(options="lookup_grace=0")
    kv = mount.ns("kv")
    put(kv / "chunk", b"chunk")
    words = ("ns", "set", mount.dir, "kv", "--origin", f"s3://{BUCKET}/somewhere")
    refused = hcfs(*words, check=False)
    assert refused.returncode == 1
    assert "the namespace holds files" in refused.stderr
    assert mount.status()["namespaces"]["kv"]["local_only"] is True
    os.unlink(kv / "chunk")
    writer = os.open(kv / "part.tmp", os.O_WRONLY | os.O_CREAT)
    os.write(writer, b"part")
    assert hcfs(*words, check=False).returncode == 1
    os.close(writer)
    os.unlink(kv / "part.tmp")
    hcfs(*words)
    assert (
        mount.status()["namespaces"]["kv"] | {"local_only": False, "write_policy": "read-only"}
        == (mount.status()["namespaces"]["kv"])
    )
    assert s3.asked == []  # nothing is asked before somebody looks
    s3.put("somewhere/x", b"x")
    assert load(kv / "x") == b"x"
    assert hcfs("ns", "set", mount.dir, "kv", "--origin", "none", check=False).returncode == 1
    assert errno_of(os.removexattr, kv, "user.hcfs.origin") == "ENOTEMPTY"
    evict_all(mount, kv)
    hcfs("ns", "set", mount.dir, "kv", "--origin", "none")
    assert mount.status()["namespaces"]["kv"]["local_only"] is True
    put(kv / "chunk", b"chunk")
    assert os.getxattr(kv / "chunk", "user.hcfs.state") == b"local-only"
