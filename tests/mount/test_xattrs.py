"""Extended attributes: users' own are kept, hcfs's tell about the object."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import crc32c
import pytest

from lab.harness.actors import Actor, errno_of, eventually, load, pattern, put, store
from lab.harness.mounts import Mount

CONTENT = pattern("xattrs", 600_001)
OWN = ["crc32c", "extents", "generation", "last_access", "namespace", "origin", "state"]


def test_users_own_attributes(kv: Path) -> None:
    """Set, replaced, listed, removed; any bytes; with the flags' errors; on files, directories, seen by others at
    once.
    """
    put(kv / "x", CONTENT)
    (kv / "d").mkdir()
    with Actor() as other:
        for path in (kv / "x", kv / "d", kv):
            assert errno_of(os.getxattr, path, "user.a") == "ENODATA"
            assert errno_of(os.removexattr, path, "user.a") == "ENODATA"
            assert errno_of(os.setxattr, path, "user.a", b"1", os.XATTR_REPLACE) == "ENODATA"
            os.setxattr(path, "user.a", bytes(range(256)), os.XATTR_CREATE)
            assert errno_of(os.setxattr, path, "user.a", b"1", os.XATTR_CREATE) == "EEXIST"
            os.setxattr(path, "user.empty", b"")
            os.setxattr(path, "user." + "n" * 250, b"long")
            assert other.getxattr(path, "user.a") == bytes(range(256))
            assert other.getxattr(path, "user.empty") == b""
            own = {name for name in other.listxattr(path) if not name.startswith("user.hcfs.")}
            assert own == {"user.a", "user.empty", "user." + "n" * 250}
            os.setxattr(path, "user.a", b"replaced", os.XATTR_REPLACE)
            other.removexattr(path, "user.empty")
            assert os.getxattr(path, "user.a") == b"replaced"
            assert "user.empty" not in os.listxattr(path)
    assert load(kv / "x") == CONTENT


def test_large_values(kv: Path) -> None:
    """4 KiB values, many of them: kept, or refused with ENOSPC or E2BIG; never cut."""
    put(kv / "x", CONTENT)
    kept = {}
    for number in range(40):
        value = pattern(number, 4000)
        outcome = errno_of(os.setxattr, kv / "x", f"user.{number}", value)
        assert outcome in ("ok", "ENOSPC", "E2BIG")
        if outcome == "ok":
            kept[f"user.{number}"] = value
    assert "user.0" in kept
    assert {name: os.getxattr(kv / "x", name) for name in os.listxattr(kv / "x") if name in kept} == kept


def test_temporary_names_keep_theirs_over_the_rename(make_mount: Callable[..., Mount]) -> None:
    """A checksum that a client keeps on its .tmp is on the final name, and after a remount."""
    mount = make_mount()
    kv = mount.ns()
    with Actor() as writer, Actor() as other:
        fd = writer.open(kv / "k.tmp", os.O_WRONLY | os.O_CREAT)
        writer.setxattr(fd, "user.before", b"written")
        writer.write_all(fd, CONTENT)
        writer.close(fd)
        writer.setxattr(kv / "k.tmp", "user.vllm.checksum", b"\0\1")
        other.setxattr(kv / "k.tmp", "user.other", b"another process may too")
        writer.rename(kv / "k.tmp", kv / "k")
    expected = {"user.before": b"written", "user.vllm.checksum": b"\0\1", "user.other": b"another process may too"}
    for _ in range(2):
        own = [name for name in os.listxattr(kv / "k") if not name.startswith("user.hcfs.")]
        assert {name: os.getxattr(kv / "k", name) for name in own} == expected
        assert load(kv / "k") == CONTENT
        mount.umount()
        mount.mount()


def test_a_new_version_starts_with_the_old_ones(kv: Path) -> None:
    """It is a view of the old object, attributes included; replaced by a rename they are the new object's."""
    put(kv / "x", CONTENT)
    os.setxattr(kv / "x", "user.a", b"1")
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY)
        writer.write(fd, b"changed")
        writer.close(fd)
        eventually(lambda: load(kv / "x").startswith(b"changed"), "published")
    assert os.getxattr(kv / "x", "user.a") == b"1"
    put(kv / "x", CONTENT)
    assert errno_of(os.getxattr, kv / "x", "user.a") == "ENODATA"


def test_what_hcfs_tells(kv: Path) -> None:
    """State, checksum of the whole, extents that add up to the size, a generation that grows, namespace, no origin,
    access.
    """
    put(kv / "x", CONTENT)
    names = [name.removeprefix("user.hcfs.") for name in os.listxattr(kv / "x") if name.startswith("user.hcfs.")]
    assert sorted(names) == OWN
    told = {name: os.getxattr(kv / "x", f"user.hcfs.{name}").decode() for name in OWN}
    assert told["namespace"] == kv.name
    assert told["crc32c"] == f"{crc32c.crc32c(CONTENT):08x}"
    assert int(told["generation"]) > 0
    put(kv / "y", CONTENT)
    assert int(os.getxattr(kv / "y", "user.hcfs.generation")) > int(told["generation"])
    put(kv / "x", CONTENT + b"more")
    assert os.getxattr(kv / "x", "user.hcfs.crc32c") == f"{crc32c.crc32c(CONTENT + b'more'):08x}".encode()


@pytest.mark.parametrize("size", [0, 1, 4096, 262_144, 262_145, 1_000_003])
def test_the_checksum_is_that_of_the_whole(kv: Path, size: int) -> None:
    """For every size around blocks and granules, and for a version written in pieces out of order."""
    content = pattern(f"crc {size}", size)
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_CREAT)
        for start in reversed(range(0, size, 100_000)):
            writer.pwrite(fd, content[start : start + 100_000], start)
        writer.close(fd)
        eventually(lambda: errno_of(os.stat, kv / "x") == "ok", "published")
    assert os.getxattr(kv / "x", "user.hcfs.crc32c") == f"{crc32c.crc32c(content):08x}".encode()


def test_states(kv: Path) -> None:
    """A committed object's is not a staged version's; each process asks about what it sees."""
    put(kv / "x", CONTENT)
    committed = os.getxattr(kv / "x", "user.hcfs.state")
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_TRUNC)
        writer.write(fd, b"staged")
        assert writer.getxattr(kv / "x", "user.hcfs.state") == b"staged"
        assert os.getxattr(kv / "x", "user.hcfs.state") == committed != b"staged"
        writer.close(fd)


def test_what_hcfs_tells_cannot_be_set(kv: Path) -> None:
    """Neither on files nor by removal; internal names are nobody's; other classes aren't kept."""
    store(kv / "x", CONTENT)
    for name in (*OWN, "unknown"):
        assert errno_of(os.setxattr, kv / "x", f"user.hcfs.{name}", b"1") == "EOPNOTSUPP"
    for name in OWN:
        assert errno_of(os.removexattr, kv / "x", f"user.hcfs.{name}") == "EOPNOTSUPP"
    assert errno_of(os.setxattr, kv / "x", "hcfs.quota", b"1") == "EOPNOTSUPP"
    assert not [name for name in os.listxattr(kv) if name.startswith("hcfs.")]


def test_getfattr_as_people_call_it(kv: Path) -> None:
    """getfattr -d -m user.hcfs prints them all, for files and for the namespace's directory."""
    put(kv / "x", CONTENT)
    done = subprocess.run(
        ["getfattr", "-d", "-m", "user.hcfs", "--absolute-names", kv / "x"], check=True, capture_output=True, text=True
    )
    printed = [line.split("=")[0] for line in done.stdout.splitlines() if line.startswith("user.")]
    assert sorted(printed) == [f"user.hcfs.{name}" for name in OWN]
    assert done.stderr == ""
    subprocess.run(["getfattr", "-d", "-m", "-", "--absolute-names", kv], check=True, capture_output=True)
