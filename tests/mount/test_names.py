"""Names are bytes: any but / and NUL, compared one by one, up to 1,024 of them a component."""

from __future__ import annotations

import os
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.harness.actors import Actor, errno_of, load, pattern, put
from lab.harness.mounts import Mount

ODD_NAMES = [
    b"key",
    b"Key",
    b"KEY",
    unicodedata.normalize("NFC", "schlüssel").encode(),
    unicodedata.normalize("NFD", "schlüssel").encode(),
    b"a%2Fb",
    b"a-SEP-b",
    b"a\\b",
    b".key",
    b"..key",
    b"...",
    b" key",
    b"key ",
    b"k",
    b"\xff",
    b"\xc3\x28 not utf-8",
    b"new\nline",
    b"\x01\x7f\t",
    b"*?[a-z]",
    b"-rf",
    b"~",
    b"#hash",
    b"'quotes\"",
    b"a:b|c<d>e",
    "日本語".encode(),
    b"org-SEP-model@0x00000000@0@0123456789abcdef@salt.data",
    b"x.tmp.data",
    b"x.TMP",
    b"tmp",
    b".hcfs",
    b"CON",
]


def test_odd_names_are_distinct_and_round_trip(kv: Path) -> None:
    """Each is stored by its temporary name, listed once, and has its own bytes; so for directories and links."""
    base = os.fsencode(kv)
    for name in ODD_NAMES:
        put(base + b"/" + name, b"content of " + name)
    assert sorted(os.listdir(base)) == sorted(ODD_NAMES)
    with Actor() as other:
        for name in ODD_NAMES:
            assert other.load(base + b"/" + name) == b"content of " + name
        assert sorted(other.listdir(base)) == sorted(ODD_NAMES)
    for name in ODD_NAMES:
        os.unlink(base + b"/" + name)
        os.mkdir(base + b"/" + name)
        os.symlink(name, base + b"/" + name + b"/" + name)
        assert os.readlink(base + b"/" + name + b"/" + name) == name
    assert sorted(os.listdir(base)) == sorted(ODD_NAMES)


def test_names_outlive_a_remount(make_mount: Callable[..., Mount]) -> None:
    """Byte for byte, also after the daemon was killed."""
    mount = make_mount()
    base = os.fsencode(mount.ns())
    for name in [*ODD_NAMES, b"n" * 1024]:
        (Path(os.fsdecode(base + b"/" + name))).mkdir()
        path = base + b"/" + name + b"/" + name
        with open(path + b".part" if len(name) < 1000 else path, "wb") as file:
            file.write(name)
    fd = os.open(base, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    mount.kill()
    mount.mount()
    assert sorted(os.listdir(base)) == sorted([*ODD_NAMES, b"n" * 1024])
    for name in ODD_NAMES:
        assert load(base + b"/" + name + b"/" + name + b".part") == name
    assert load(base + b"/" + b"n" * 1024 + b"/" + b"n" * 1024) == b"n" * 1024


@pytest.mark.parametrize("length", [1, 254, 255, 256, 257, 700, 1019, 1020])
def test_long_names_with_their_temporary_name(kv: Path, length: int) -> None:
    """With .data replaced by .tmp, as fs_native does, and through every call that takes a name."""
    key = "m" * max(0, length - 5)
    final, tmp = kv / (key + ".data")[-length:], kv / (key + ".tmp")
    content = pattern(length, 5000)
    with Actor() as writer, Actor() as other:
        writer.store(tmp, content)
        writer.rename(tmp, final)
        assert other.load(final) == content
        assert other.stat(final).st_size == 5000
        other.link(final, kv / ("l" * length))
        other.setxattr(final, "user.note", b"long")
        assert writer.getxattr(final, "user.note") == b"long"
        writer.mkdir(kv / ("d" * length))
        writer.symlink("s" * length, kv / ("s" * length))
        assert other.readlink(kv / ("s" * length)) == "s" * length
        other.unlink(final)
        assert other.load(kv / ("l" * length)) == content
        other.rmdir(kv / ("d" * length))
    assert sorted(os.listdir(kv)) == ["l" * length, "s" * length]


def test_the_longest_name(kv: Path) -> None:
    """1,024 bytes; f_namemax is the truth."""
    assert os.statvfs(kv).f_namemax == 1024
    name = kv / ("n" * 1024)
    content = pattern("longest", 5000)
    with Actor() as writer:
        writer.store(kv / "k.tmp", content)
        writer.rename(kv / "k.tmp", name)
        assert load(name) == content
        os.rename(name, kv / ("t" * 1020 + ".tmp"))
        assert writer.load(kv / ("t" * 1020 + ".tmp")) == content
        os.rename(kv / ("t" * 1020 + ".tmp"), name)
    assert os.listdir(kv) == ["n" * 1024]


def test_one_byte_too_many(kv: Path) -> None:
    """ENAMETOOLONG from every call that takes a name, for characters of several bytes too, and nothing is made."""
    put(kv / "x", b"x")
    for name in ("n" * 1025, "n" * 2000, "ü" * 513, "n" * 1025 + ".tmp", "n" * 1025 + ".lock"):
        bad = kv / name
        assert errno_of(os.stat, bad) == "ENAMETOOLONG"
        assert errno_of(os.open, bad, os.O_RDONLY) == "ENAMETOOLONG"
        assert errno_of(os.open, bad, os.O_WRONLY | os.O_CREAT) == "ENAMETOOLONG"
        assert errno_of(os.mkdir, bad) == "ENAMETOOLONG"
        assert errno_of(os.mknod, bad) == "ENAMETOOLONG"
        assert errno_of(os.symlink, "x", bad) == "ENAMETOOLONG"
        assert errno_of(os.link, kv / "x", bad) == "ENAMETOOLONG"
        assert errno_of(os.rename, kv / "x", bad) == "ENAMETOOLONG"
        assert errno_of(os.rename, bad, kv / "y") == "ENAMETOOLONG"
        assert errno_of(os.unlink, bad) == "ENAMETOOLONG"
        assert errno_of(os.rmdir, bad) == "ENAMETOOLONG"
        assert errno_of(os.truncate, bad, 0) == "ENAMETOOLONG"
    assert os.listdir(kv) == ["x"]


def test_long_namespaces(shared_mount: Mount, kv: Path) -> None:
    """A namespace's name may be as long as any other."""
    name = kv.name + "-" + "n" * (1024 - len(kv.name) - 1)
    (shared_mount.dir / name).mkdir()
    put(shared_mount.dir / name / "x", b"x")
    assert name in os.listdir(shared_mount.dir)
    assert name in shared_mount.status()["namespaces"]
    assert errno_of(os.mkdir, shared_mount.dir / (name + "n")) == "ENAMETOOLONG"


def test_tools_see_the_same_names(kv: Path) -> None:
    """ls and find list long and odd names as they are."""
    base = os.fsencode(kv)
    names = [name for name in ODD_NAMES if b"\n" not in name] + [b"n" * 700]
    for name in names:
        put(base + b"/" + name, b"")
    listed = subprocess.run(["ls", "-A", "--quoting-style=literal", "-1", "--", base], check=True, capture_output=True)
    assert sorted(listed.stdout.splitlines()) == sorted(names)
    found = subprocess.run(["find", base, "-type", "f", "-printf", "%P\\0"], check=True, capture_output=True)
    assert sorted(found.stdout.split(b"\0")[:-1]) == sorted(names)
