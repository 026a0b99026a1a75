"""The .hcfs tree at the mount's root: virtual, read-only, readable with cat."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lab.harness.actors import Actor, errno_of, eventually, load, load_direct, pattern, put
from lab.harness.mounts import Mount

FIELDS = {
    "uuid": str,
    "label": str,
    "device": str,
    "state": str,
    "io": str,
    "granule_bytes": int,
    "capacity_bytes": int,
    "used_bytes": int,
    "free_bytes": int,
    "staged_bytes": int,
    "pending_bytes": int,
    "quarantined_bytes": int,
    "evictable_bytes": int,
    "dirty_bytes": int,
    "objects": int,
    "staged_objects": int,
    "quarantined_objects": int,
    "max_objects": int,
    "fragmented_objects": int,
    "free_runs": int,
    "largest_free_bytes": int,
    "counters": dict,
    "requests": dict,
    "namespaces": dict,
}
COUNTERS = {
    "lookups",
    "lookup_misses",
    "opens",
    "read_bytes",
    "written_bytes",
    "commits",
    "abandoned",
    "evictions",
    "evicted_bytes",
    "checksum_errors",
    "device_errors",
    "ingests",
    "uploads",
    "upload_failures",
    "copied_bytes",
}
NAMESPACE = {"objects", "used_bytes", "quota_bytes", "local_only", "origin", "write_policy", "evictions", "salts"}
NAMESPACE |= {"staged_bytes", "salt_quota_bytes"}


def test_status_has_every_field(make_mount: Callable[..., Mount]) -> None:
    """Names and types that others rely on, and values where they are known."""
    mount = make_mount(mkfs=("--label", "bench", "--granule", "128K"))
    mount.ns("kv")
    mount.ns("weights")
    status = mount.status()
    assert {name: type(status.get(name)) for name in FIELDS} == FIELDS
    assert set(status["counters"]) >= COUNTERS
    assert all(type(status["counters"][name]) is int for name in COUNTERS)
    assert set(status["namespaces"]) == {"kv", "weights"}
    for usage in status["namespaces"].values():
        assert set(usage) >= NAMESPACE
        assert (usage["objects"], usage["used_bytes"], usage["evictions"], usage["salts"]) == (0, 0, 0, {})
        assert usage["local_only"] is True
        assert usage["origin"] is None
        assert usage["quota_bytes"] is None
    assert (status["label"], status["state"], status["granule_bytes"]) == ("bench", "ok", 131_072)
    assert status["io"] == "direct"
    assert status["device"] == str(mount.source)
    assert status["dirty_bytes"] == 0
    parts = ("used_bytes", "free_bytes", "staged_bytes", "pending_bytes", "quarantined_bytes")
    assert sum(status[part] for part in parts) == status["capacity_bytes"]
    assert 0.8 * mount.source.stat().st_size < status["capacity_bytes"] < mount.source.stat().st_size


def test_counters_count(make_mount: Callable[..., Mount]) -> None:
    """Bytes written and read through the daemon, opens, misses, commits."""
    mount = make_mount(options="commit_interval=0.05")
    kv = mount.ns()
    before = mount.status()["counters"]
    content = pattern("counted", 1 << 20)
    put(kv / "x", content)
    assert load_direct(kv / "x") == content
    assert errno_of(os.stat, kv / "absent") == "ENOENT"
    os.fsync(fd := os.open(kv, os.O_RDONLY))
    os.close(fd)
    after = mount.status()["counters"]
    assert after["written_bytes"] - before["written_bytes"] == len(content)
    assert after["read_bytes"] - before["read_bytes"] == len(content)
    assert after["opens"] - before["opens"] >= 1
    assert after["lookup_misses"] > before["lookup_misses"]
    assert after["lookups"] > before["lookups"]
    assert after["commits"] > before["commits"]
    assert after["abandoned"] == after["checksum_errors"] == after["device_errors"] == 0


def test_usage_is_told_a_namespace_and_a_salt(make_mount: Callable[..., Mount]) -> None:
    """Objects, bytes, and bytes a cache salt, which is part of LMCache's file names."""
    mount = make_mount()
    kv, other = mount.ns("kv"), mount.ns("other")
    name = "org-SEP-model@0x00000000@0@{:064x}"
    put(kv / f"{name.format(1)}.data", bytes(8192))
    put(kv / f"{name.format(2)}@tenant-a.data", bytes(12_288))
    put(kv / f"{name.format(3)}@tenant-a.data", bytes(4096))
    put(kv / f"{name.format(4)}@tenant-b.data", bytes(4097))
    put(other / "x", bytes(1))
    usage = mount.status()["namespaces"]
    assert (usage["kv"]["objects"], usage["kv"]["used_bytes"]) == (4, 8192 + 12_288 + 4096 + 8192)
    assert {salt: size for salt, size in usage["kv"]["salts"].items() if salt} == {"tenant-a": 16_384, "tenant-b": 8192}
    assert (usage["other"]["objects"], usage["other"]["used_bytes"]) == (1, 4096)
    assert mount.status()["objects"] == 5
    os.unlink(kv / f"{name.format(3)}@tenant-a.data")
    assert mount.status()["namespaces"]["kv"]["salts"]["tenant-a"] == 12_288
    one = json.loads((mount.dir / ".hcfs" / "namespaces" / "kv.json").read_bytes())
    assert one["objects"] == 3
    assert sorted(os.listdir(mount.dir / ".hcfs" / "namespaces")) == ["kv.json", "other.json"]


def test_staged_versions_are_listed(shared_mount: Mount, kv: Path) -> None:
    """Open ones and closed ones under staging names, and no longer once they are published."""
    staged = shared_mount.dir / ".hcfs" / "staged"
    with Actor() as writer:
        fd = writer.open(kv / "open", os.O_WRONLY | os.O_CREAT)
        writer.write(fd, b"x")
        writer.store(kv / "closed.tmp", b"x")
        text = staged.read_text()
        assert f"{kv.name}/open" in text
        assert f"{kv.name}/closed.tmp" in text
        writer.close(fd)
        writer.rename(kv / "closed.tmp", kv / "closed")
        eventually(lambda: f"{kv.name}/" not in staged.read_text(), "both are published")


def test_metrics_are_prometheus_text(shared_mount: Mount, kv: Path) -> None:
    """They parse, and agree with the status."""
    put(kv / "x", bytes(4096))
    families = list(text_string_to_metric_families((shared_mount.dir / ".hcfs" / "metrics").read_text()))
    assert families
    assert all(family.name.startswith("hcfs_") for family in families)
    values = {family.name: family.samples[0].value for family in families if family.samples}
    assert values["hcfs_capacity_bytes"] == shared_mount.status()["capacity_bytes"]


def test_requests_are_counted_by_opcode(make_mount: Callable[..., Mount]) -> None:
    """A store of 4 MiB as LMCache makes it, and a load: what each costs in requests and in bytes copied."""
    mount = make_mount()
    directory, content = mount.ns(), os.urandom(4 << 20)
    before = mount.status()
    put(directory / "object", content)
    assert load_direct(directory / "object") == content
    after = mount.status()
    grown = {opcode: number - before["requests"].get(opcode, 0) for opcode, number in after["requests"].items()}
    # The status itself is looked up, opened, read and released.
    assert grown["WRITE"] == 4
    assert grown["READ"] >= 4
    assert grown["CREATE"] == 1
    assert grown["OPEN"] == 2
    assert grown["RELEASE"] >= 2
    text = (mount.dir / ".hcfs" / "metrics").read_text()
    assert 'hcfs_requests_total{opcode="WRITE"} 4.0' in text
    copied = after["counters"]["copied_bytes"] - before["counters"]["copied_bytes"]
    assert 0 <= copied <= 2 * len(content)


def test_every_accepted_option_is_in_the_configuration(make_mount: Callable[..., Mount]) -> None:
    """With the value in force."""
    options = "commit_interval=0.5,staging_ttl=77,lookup_grace=5,high_watermark=0.9,low_watermark=0.8,allow_other"
    mount = make_mount(options=options)
    configuration = json.loads((mount.dir / ".hcfs" / "config.json").read_bytes())
    for word in options.split(","):
        name, _, value = word.partition("=")
        assert configuration[name] == (float(value) if value else True)


@pytest.mark.parametrize("name", ["status.json", "metrics", "config.json", "staged"])
def test_files_are_read_as_files(shared_mount: Mount, name: str) -> None:
    """Whole by cat, in pieces by a handle that sees one moment, by several processes."""
    path = shared_mount.dir / ".hcfs" / name
    printed = subprocess.run(["cat", path], check=True, capture_output=True).stdout
    assert subprocess.run(["head", "-c", "10", path], check=True, capture_output=True).stdout == printed[:10]
    fd = os.open(path, os.O_RDONLY)
    whole = load(path)
    pieces = [os.pread(fd, 7, offset) for offset in range(0, 1 << 16, 7)]
    assert os.pread(fd, 1 << 20, 0) == b"".join(pieces)
    assert len(whole) < 1 << 16
    os.close(fd)


def test_it_is_read_only(shared_mount: Mount, kv: Path) -> None:
    """No call changes anything in it, removes it, or takes its place."""
    tree = shared_mount.dir / ".hcfs"
    put(kv / "x", b"x")
    refusals = ("EPERM", "EACCES", "EROFS")
    assert errno_of(os.open, tree / "status.json", os.O_WRONLY) in refusals
    assert errno_of(os.open, tree / "status.json", os.O_RDWR | os.O_TRUNC) in refusals
    assert errno_of(os.truncate, tree / "status.json", 0) in refusals
    assert errno_of(os.open, tree / "new", os.O_WRONLY | os.O_CREAT) in refusals
    assert errno_of(os.mkdir, tree / "new") in refusals
    assert errno_of(os.mknod, tree / "new") in refusals
    assert errno_of(os.symlink, "x", tree / "new") in refusals
    assert errno_of(os.unlink, tree / "staged") in refusals
    assert errno_of(os.rmdir, tree / "quarantine") in refusals
    assert errno_of(os.rmdir, tree) in refusals
    assert errno_of(os.chmod, tree / "staged", 0o777) in refusals
    assert errno_of(os.chown, tree / "staged", 1, 1) in refusals
    assert errno_of(os.utime, tree / "staged", (1, 1)) in refusals
    assert errno_of(os.setxattr, tree / "staged", "user.a", b"1") in refusals
    assert errno_of(os.rename, tree, shared_mount.dir / "moved") in refusals
    assert errno_of(os.rename, tree / "staged", kv / "staged") in (*refusals, "EXDEV")
    assert errno_of(os.rename, kv / "x", tree / "x") in (*refusals, "EXDEV")
    assert errno_of(os.link, kv / "x", tree / "x") in (*refusals, "EXDEV")
    assert errno_of(os.link, tree / "staged", kv / "staged") in (*refusals, "EXDEV")
    assert errno_of(os.mkdir, tree) == "EEXIST"
    assert errno_of(os.stat, tree / "absent") == "ENOENT"
    assert shared_mount.status()["state"] == "ok"


def test_it_can_be_walked(shared_mount: Mount, kv: Path) -> None:
    """ls -lR, find and stat go through it without an error; each file's inode number is its own and stays."""
    tree = shared_mount.dir / ".hcfs"
    assert {"status.json", "metrics", "config.json", "staged", "quarantine", "namespaces"} <= set(os.listdir(tree))
    subprocess.run(["ls", "-lR", tree], check=True, capture_output=True)
    found = subprocess.run(["find", tree, "-printf", "%i\\n"], check=True, capture_output=True).stdout.split()
    assert len(set(found)) == len(found)
    assert f"{kv.name}.json" in os.listdir(tree / "namespaces")
    for name in os.listdir(tree):
        assert os.stat(tree / name).st_ino == os.stat(tree / name).st_ino
        assert os.stat(tree / name).st_mode & 0o222 == (0o200 if name == "control" else 0)


def test_namespaces_of_any_name(shared_mount: Mount, kv: Path) -> None:
    """Names that aren't UTF-8, or hold quotes, don't break the status."""
    base = os.fsencode(shared_mount.dir)
    names = [os.fsencode(kv.name) + tail for tail in (b"-\xff", b'-"quoted"', b"-new\nline", "-日本".encode())]
    for name in names:
        os.mkdir(base + b"/" + name)
    told = shared_mount.status()["namespaces"]
    assert len([name for name in told if name.startswith(f"{kv.name}-")]) == len(names)
    subprocess.run(["ls", "-l", shared_mount.dir / ".hcfs" / "namespaces"], check=True, capture_output=True)
    list(text_string_to_metric_families((shared_mount.dir / ".hcfs" / "metrics").read_text()))
