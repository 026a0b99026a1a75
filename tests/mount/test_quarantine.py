"""Any doubt is a miss: EIO and never a wrong byte, and by then the name is gone, for everybody."""

from __future__ import annotations

import errno
import json
import os
import signal
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mount.damage import flip, locate

from lab.harness.actors import Actor, drop_pages, errno_of, eventually, load, load_direct, pattern, put, read_all
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

GRANULE = 262_144
CONTENT = pattern("quarantined", 4 * GRANULE)
WARNINGS = (r"quarantin", r"checksum", r"mismatch", r"verif", r"device", r"short")


def damaged(make_mount: Callable[..., Mount], **options: Any) -> tuple[Mount, Path]:
    """A mount with a good object `good` and one, `x`, whose byte 300,000 is flipped on the medium."""
    mount = make_mount(allow_warnings=WARNINGS, **options)
    kv = mount.ns()
    put(kv / "x", CONTENT)
    put(kv / "good", CONTENT[::-1])
    flip(mount.source, CONTENT, 300_000)
    return mount, kv


def assert_quarantined(mount: Mount, errors: int = 1) -> None:
    """One object, accounted for, counted so many times."""
    status = mount.status()
    assert status["quarantined_objects"] == 1
    assert status["quarantined_bytes"] == len(CONTENT)
    assert status["counters"]["checksum_errors"] == errors
    parts = ("used_bytes", "free_bytes", "staged_bytes", "pending_bytes", "quarantined_bytes")
    assert sum(status[part] for part in parts) == status["capacity_bytes"]


def test_the_first_read_errors_and_the_name_is_gone(make_mount: Callable[..., Mount]) -> None:
    """EIO; then ENOENT for a process whose kernel cache had the name; the other object is served; a new store heals."""
    mount, kv = damaged(make_mount)
    before = mount.status()
    with Actor() as other:
        assert other.stat(kv / "x").st_size == len(CONTENT)
        assert errno_of(load_direct, kv / "x") == "EIO"
        assert errno_of(other.stat, kv / "x") == errno_of(os.stat, kv / "x") == "ENOENT"
        assert errno_of(other.open, kv / "x", os.O_RDONLY) == "ENOENT"
        assert other.access(kv / "x", os.F_OK) is False
        assert os.listdir(kv) == ["good"]
        assert_quarantined(mount)
        assert mount.status()["used_bytes"] == before["used_bytes"] - len(CONTENT)
        assert mount.status()["objects"] == before["objects"] - 1
        assert load_direct(kv / "good") == CONTENT[::-1]
        put(kv / "x", CONTENT)
        assert other.load(kv / "x") == load_direct(kv / "x") == CONTENT
        assert_quarantined(mount)


def test_exclusive_creation_after_the_error(make_mount: Callable[..., Mount]) -> None:
    """A client that creates with O_EXCL isn't kept out by what is quarantined."""
    _, kv = damaged(make_mount)
    assert errno_of(load_direct, kv / "x") == "EIO"
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        writer.write_all(fd, CONTENT)
        writer.close(fd)
        eventually(lambda: errno_of(os.stat, kv / "x") == "ok", "published")
    assert load_direct(kv / "x") == CONTENT


def test_a_buffered_reader(make_mount: Callable[..., Mount]) -> None:
    """What comes before the bad granule is right, then EIO; the kernel's retries page by page count as one error."""
    mount, kv = damaged(make_mount)
    drop_pages(kv / "x")
    fd = os.open(kv / "x", os.O_RDONLY)
    seen = b""
    while (outcome := errno_of(os.pread, fd, 50_000, len(seen))) == "ok":
        part = os.pread(fd, 50_000, len(seen))
        assert part
        seen += part
    assert outcome == "EIO"
    assert seen == CONTENT[: len(seen)]
    assert errno_of(os.pread, fd, 4096, 300_000) == "EIO"
    assert errno_of(os.stat, kv / "x") == "ENOENT"
    assert_quarantined(mount)
    os.close(fd)


def test_open_handles_go_on_serving_what_verifies(make_mount: Callable[..., Mount]) -> None:
    """The three good granules by handles opened before; EIO for the bad one each time; counted once."""
    mount, kv = damaged(make_mount)
    with Actor() as reader:
        fd = reader.open(kv / "x", os.O_RDONLY | os.O_DIRECT)
        assert reader.pread_direct(fd, GRANULE, 0) == CONTENT[:GRANULE]
        for _ in range(3):
            assert errno_of(reader.pread_direct, fd, 4096, GRANULE) == "EIO"
            assert errno_of(reader.pread_direct, fd, 1 << 20, 0) == "EIO"
        assert errno_of(os.stat, kv / "x") == "ENOENT"
        for granule in (0, 2, 3):
            start = granule * GRANULE
            assert reader.pread_direct(fd, GRANULE, start) == CONTENT[start : start + GRANULE]
        assert_quarantined(mount)


def test_a_mapping(make_mount: Callable[..., Mount]) -> None:
    """SIGBUS on the bad granule, for the process that touches it; the good ones are readable; the name is gone."""
    mount, kv = damaged(make_mount)
    drop_pages(kv / "x")
    with Actor() as reader:
        mapping = reader.map_file(reader.open(kv / "x", os.O_RDONLY), len(CONTENT))
        assert reader.map_read(mapping, 2 * GRANULE) == CONTENT[2 * GRANULE :]
        reader.begin("map_read", mapping, 300_000, 300_001)
        assert reader.process.wait(30) == -signal.SIGBUS
    assert errno_of(os.stat, kv / "x") == "ENOENT"
    assert_quarantined(mount)


def test_every_name_goes(make_mount: Callable[..., Mount]) -> None:
    """Hard links in other directories too, although the kernel had cached them."""
    mount, kv = damaged(make_mount)
    (kv / "d").mkdir()
    os.link(kv / "x", kv / "d" / "y")
    os.link(kv / "x", kv / "z")
    with Actor() as other:
        for name in ("x", "z", "d/y"):
            assert other.stat(kv / name).st_nlink == 3
        assert errno_of(load_direct, kv / "z") == "EIO"
        for name in ("x", "z", "d/y"):
            assert errno_of(other.stat, kv / name) == errno_of(other.open, kv / name, os.O_RDONLY) == "ENOENT"
    assert os.listdir(kv / "d") == []
    assert_quarantined(mount)


def test_after_a_remount(make_mount: Callable[..., Mount]) -> None:
    """The verdict stays: still absent, also after the daemon was killed."""
    mount, kv = damaged(make_mount)
    assert errno_of(load_direct, kv / "x") == "EIO"
    mount.umount()
    mount.mount()
    assert errno_of(os.stat, kv / "x") == "ENOENT"
    assert load(kv / "good") == CONTENT[::-1]
    put(kv / "x", CONTENT)
    os.fsync(fd := os.open(kv, os.O_RDONLY))
    os.close(fd)
    mount.kill()
    mount.mount()
    assert load(kv / "x") == CONTENT
    mount.umount()
    hcfs("fsck", mount.source)


def test_the_whole_object_is_checked_where_open_verifies(make_mount: Callable[..., Mount]) -> None:
    """verify=open: a bad object is ENOENT at open, for programs that map it or know no other miss; a good one opens."""
    mount = make_mount(allow_warnings=WARNINGS)
    hcfs("ns", "create", mount.dir, "kv", "--verify", "open")
    kv = mount.dir / "kv"
    put(kv / "x", CONTENT)
    put(kv / "good", CONTENT[::-1])
    flip(mount.source, CONTENT, len(CONTENT) - 1)
    with Actor() as reader:
        assert reader.stat(kv / "x").st_size == len(CONTENT)
        assert errno_of(reader.open, kv / "x", os.O_RDONLY) == "ENOENT"
        assert errno_of(reader.stat, kv / "x") == "ENOENT"
        assert reader.load(kv / "good") == CONTENT[::-1]
    assert os.listdir(kv) == ["good"]
    assert_quarantined(mount)


def test_the_quarantine_can_be_inspected(make_mount: Callable[..., Mount]) -> None:
    """.hcfs/quarantine tells what was taken, where it was, and why."""
    mount, kv = damaged(make_mount)
    quarantine = mount.dir / ".hcfs" / "quarantine"
    assert os.listdir(quarantine) == []
    assert errno_of(load_direct, kv / "x") == "EIO"
    assert len(os.listdir(quarantine)) == 1
    told = (quarantine / os.listdir(quarantine)[0]).read_bytes()
    assert b"kv/x" in told


def test_quarantined_objects_are_evicted_first(make_mount: Callable[..., Mount]) -> None:
    """They make room before any committed object does."""
    # Nothing goes in the background, which would go on down to its mark.
    options = "lookup_grace=0,high_watermark=100%,low_watermark=99%"
    mount, kv = damaged(make_mount, size="64M", options=options)
    assert errno_of(load_direct, kv / "x") == "EIO"
    number = 0
    while (status := mount.status())["quarantined_objects"]:
        assert status["counters"]["evictions"] == 0
        assert errno_of(put, kv / f"{number}", bytes(1 << 20)) == "ok"
        number += 1
        assert number < 64
    assert errno_of(os.stat, kv / "good") == "ok"
    assert os.listdir(mount.dir / ".hcfs" / "quarantine") == []


def test_a_medium_that_ends_early(make_mount: Callable[..., Mount]) -> None:
    """The device delivers too few bytes: EIO and a miss, never zeros or a short read."""
    mount = make_mount(allow_warnings=(*WARNINGS, "."))
    kv = mount.ns()
    put(kv / "x", CONTENT)
    put(kv / "y", CONTENT[::-1])
    os.fsync(fd := os.open(kv, os.O_RDONLY))
    os.close(fd)
    size = mount.source.stat().st_size
    last = max(("x", CONTENT), ("y", CONTENT[::-1]), key=lambda pair: locate(mount.source, pair[1], 0))
    os.truncate(mount.source, locate(mount.source, last[1], GRANULE))
    assert errno_of(load_direct, kv / last[0]) == "EIO"
    assert errno_of(os.stat, kv / last[0]) == "ENOENT"
    os.truncate(mount.source, size)
    counters = mount.status()["counters"]
    assert counters["device_errors"] + counters["checksum_errors"] >= 1
    assert load_direct(kv / ("y" if last[0] == "x" else "x")) in (CONTENT, CONTENT[::-1])


def test_after_a_remount_every_read_is_of_the_medium(make_mount: Callable[..., Mount]) -> None:
    """The kernel may still have the writer's pages before; afterwards a buffered read meets the flip, too."""
    mount, kv = damaged(make_mount)
    mount.umount()
    mount.mount()
    fd = os.open(kv / "x", os.O_RDONLY)
    with pytest.raises(OSError) as refusal:
        read_all(fd)
    os.close(fd)
    assert refusal.value.errno == errno.EIO
    assert errno_of(os.stat, kv / "x") == "ENOENT"


def test_safetensors_headers_are_not_special(make_mount: Callable[..., Mount]) -> None:
    """A flip in the first granule of a weight file is a miss for its header too, not a wrong length."""
    mount = make_mount(allow_warnings=WARNINGS)
    header = json.dumps({"t": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    content = struct.pack("<Q", len(header)) + header + CONTENT
    put(mount.ns() / "m.safetensors", content)
    flip(mount.source, content, 1000)
    assert errno_of(load_direct, mount.dir / "kv" / "m.safetensors", 4096) == "EIO"
    assert errno_of(os.stat, mount.dir / "kv" / "m.safetensors") == "ENOENT"
