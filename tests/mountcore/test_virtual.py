"""The .hcfs tree."""

from __future__ import annotations

import json
import os

from mountcore.kernel import Process, Rig, errno_of

from hcfs.daemon.scrubbing import Scrubbing
from hcfs.daemon.status import StatusReport
from hcfs.device import BufferPool
from hcfs.filesystem.calls import finish
from hcfs.options.mount_options import MountOptions
from hcfs.store import ROOT_ID

FIELDS = (
    "uuid label device state io granule_bytes capacity_bytes used_bytes free_bytes staged_bytes pending_bytes "
    "quarantined_bytes evictable_bytes dirty_bytes objects staged_objects quarantined_objects max_objects counters "
    "namespaces"
)
COUNTERS = (
    "lookups lookup_misses opens read_bytes written_bytes commits abandoned evictions evicted_bytes checksum_errors "
    "device_errors ingests uploads upload_failures"
)


def with_tree(rig: Rig) -> int:
    options = MountOptions.parse("lookup_grace=5")
    report = StatusReport(
        rig.fs,
        rig.device,
        BufferPool(1 << 20),
        options,
        source="/dev/x",
        directory="/mnt/x",
        scrubbing=Scrubbing(rig.fs),
    )
    tree = report.tree()
    rig.fs.parts.show(tree, None)
    return tree.root


def read(me: Process, parent: int, name: bytes) -> bytes:
    entry = me.lookup(name, parent)
    opened = finish(me.fs.open(entry.ino, os.O_RDONLY, me.caller))
    assert opened.direct_io
    content = b""
    while part := me.read(opened.handle, 1000, len(content)):
        content += part
    me.close(opened.handle)
    return content


def test_the_tree(rig: Rig, me: Process) -> None:
    tree = with_tree(rig)
    assert me.lookup(b".hcfs", ROOT_ID).ino == tree
    assert sorted(me.list(ROOT_ID)) == [b".hcfs", b"kv"]
    expected = [b"config.json", b"control", b"metrics", b"namespaces", b"quarantine", b"staged", b"status.json"]
    assert sorted(me.list(tree)) == expected
    assert me.lookup(b"..", tree).ino == ROOT_ID
    assert not me.exists(b"absent", tree)
    assert errno_of(me.lookup, b"x", me.lookup(b"staged", tree).ino) == "ENOTDIR"


def test_status(rig: Rig, me: Process) -> None:
    tree = with_tree(rig)
    me.put(b"f@m@0x00000000@0@ab@salty.data", bytes(5000))
    status = json.loads(read(me, tree, b"status.json"))
    assert set(status) >= set(FIELDS.split())
    assert set(status["counters"]) >= set(COUNTERS.split())
    parts = ("used", "free", "staged", "pending", "quarantined")
    assert sum(status[f"{part}_bytes"] for part in parts) == status["capacity_bytes"]
    assert (status["device"], status["objects"], status["namespaces"]["kv"]["objects"]) == ("/dev/x", 1, 1)
    usage = json.loads(read(me, me.lookup(b"namespaces", tree).ino, b"kv.json"))
    assert (usage["used_bytes"], usage["options"]["verify"]) == (8192, "read")


def test_staged_versions_are_listed(rig: Rig, me: Process) -> None:
    tree = with_tree(rig)
    me.put(b"w.tmp", b"123")
    handle = me.open(b"x", os.O_WRONLY | os.O_CREAT)
    lines = [line.split(b"\t") for line in read(me, tree, b"staged").splitlines()]
    pid = str(os.getpid()).encode()
    assert [(fields[0], fields[1], fields[2], fields[5]) for fields in lines] == [
        (b"3", b"waiting", pid, b"kv/w.tmp"),
        (b"0", b"writing", pid, b"kv/x"),
    ]
    me.close(handle)


def test_quarantine_is_listed_with_reasons(rig: Rig, me: Process) -> None:
    tree = with_tree(rig)
    ino = me.put(b"f", b"1")
    rig.store.quarantine(ino, "of a test")
    directory = me.lookup(b"quarantine", tree).ino
    (name,) = me.list(directory)
    found = json.loads(read(me, directory, name))
    assert (found["path"], found["reason"], found["bytes"]) == ("kv/f", "of a test", 4096)


def test_metrics(rig: Rig, me: Process) -> None:
    tree = with_tree(rig)
    text = read(me, tree, b"metrics").decode()
    assert "hcfs_capacity_bytes" in text
    assert 'hcfs_namespace_objects{namespace="kv"} 0.0' in text


def test_it_cannot_be_changed(rig: Rig, me: Process) -> None:
    tree = with_tree(rig)
    status = me.lookup(b"status.json", tree).ino
    for call in (
        lambda: me.fs.open(status, os.O_WRONLY, me.caller),
        lambda: me.fs.create(tree, b"x", 0o644, os.O_WRONLY, me.caller),
        lambda: me.fs.mkdir(tree, b"x", 0o755, me.caller),
        lambda: me.fs.mkdir(ROOT_ID, b".hcfs", 0o755, me.caller),
        lambda: me.fs.rmdir(ROOT_ID, b".hcfs"),
        lambda: me.fs.unlink(tree, b"status.json", me.caller),
        lambda: me.fs.rename(rig.kv, b"f", tree, b"f", 0, me.caller),
        lambda: me.fs.setxattr(status, b"user.a", b"1", me.caller),
    ):
        assert errno_of(call) == "EROFS"
    assert me.fs.listxattr(status) == []
