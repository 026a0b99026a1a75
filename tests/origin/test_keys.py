"""Keys that the library, or a filesystem, can't tell apart: each is what it is, or is refused alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hcfs.origin import Listed
from hcfs.remote.listing.origin_found import Found
from lab.harness.actors import errno_of, load, put, store
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount
from lab.harness.origins.clients import content, evict_all, namespace, origin_status, state
from lab.harness.origins.gcs import Gcs
from lab.harness.origins.s3 import S3
from lab.harness.origins.server import Asked, Fault, OriginServer

WRITING = {"write_policy": "write-through"}


def refused(mount: Mount, directory: Path) -> dict[str, str]:
    return {each["path"]: each["reason"] for each in origin_status(mount, directory)["refused"]}


def relisted(directory: Path) -> list[str]:
    """Names, of a listing that is made now, where the namespace has `revalidate=0`."""
    return sorted(os.listdir(directory))


def is_head_of(asked: Asked, key: str) -> bool:
    return asked.method == "HEAD" and asked.path.endswith(f"/{key}")


def test_a_mark_is_a_directory(shared: Mount, server: OriginServer) -> None:
    files = {"e/": b"", "deep/down/": b"", "full/": b"", "full/f": b"f", "zero": b"", "zero.txt": b"zero"}
    there, _ = namespace(shared, server, files)
    assert sorted(os.listdir(there)) == ["deep", "e", "full", "zero", "zero.txt"]
    for name in ("e", "deep", "deep/down", "full"):
        assert (there / name).is_dir()
    assert os.listdir(there / "e") == os.listdir(there / "deep" / "down") == []
    assert load(there / "full" / "f") == b"f"
    assert (there / "zero").is_file()
    assert load(there / "zero") == b""
    assert state(there / "zero") == "clean"
    assert refused(shared, there) == {}


def test_a_mark_that_comes_and_goes(shared: Mount, server: OriginServer) -> None:
    there, prefix = namespace(shared, server, {"f": b"f"}, origin_changes="revalidate=0")
    assert relisted(there) == ["f"]
    server.put(f"{prefix}/e/", b"")
    assert relisted(there) == ["e", "f"]
    assert (there / "e").is_dir()
    server.delete(f"{prefix}/e/")
    assert relisted(there) == ["f"]
    server.put(f"{prefix}/e", b"")
    assert relisted(there) == ["e", "f"]
    assert (there / "e").is_file()
    assert load(there / "e") == b""


@pytest.mark.parametrize("real", [b"the real one", b""])
def test_a_file_beside_a_mark_of_its_name(shared: Mount, server: OriginServer, real: bytes) -> None:
    there, prefix = namespace(shared, server, {"g": real, "g/": b"", "other": b"other"}, **WRITING)
    assert sorted(os.listdir(there)) == ["g", "other"]
    assert load(there / "g") == real
    evict_all(shared, there)
    put(there / "g", b"written over")
    assert server.get(f"{prefix}/g") == b"written over"
    evict_all(shared, there)
    assert load(there / "g") == b"written over"
    (there / "g").unlink()
    assert server.get(f"{prefix}/g") is None
    assert "g/" in server.keys(prefix)


def test_a_path_that_comes_twice_is_refused(shared: Mount, server: OriginServer) -> None:
    """Where the origin doesn't say which of the two it is: nothing is read, removed or written for that path."""
    files = {"g": b"the real one", "g/": b"", "other": b"other", "gone": b"gone"}
    there, prefix = namespace(shared, server, files, **WRITING)
    server.faults = lambda asked, _: Fault(status=404) if is_head_of(asked, "g") else None
    assert sorted(os.listdir(there)) == ["gone", "other"]
    for call in (os.stat, load, os.unlink, os.mkdir):
        assert errno_of(call, there / "g") == "EIO"
    assert errno_of(store, there / "g", b"over") == "EIO"
    store(there / "new.tmp", b"new")
    assert errno_of(os.rename, there / "new.tmp", there / "g") == "EIO"
    (there / "new.tmp").unlink()
    assert list(refused(shared, there)) == ["g"]
    assert "lists it twice" in refused(shared, there)["g"]
    doctor = hcfs("doctor", shared.dir, check=False).stdout
    assert "g: the origin lists it twice" in doctor
    assert load(there / "other") == b"other"
    assert server.get(f"{prefix}/g") == b"the real one"
    assert set(server.keys(prefix)) == {"g", "g/", "other", "gone"}


def test_a_path_that_becomes_doubtful_while_it_is_known(shared: Mount, server: OriginServer) -> None:
    """The kernel has it, and the device has its content."""
    there, prefix = namespace(shared, server, {"g": b"the real one"}, origin_changes="revalidate=0", **WRITING)
    assert load(there / "g") == b"the real one"
    server.put(f"{prefix}/g/", b"")
    server.faults = lambda asked, _: Fault(status=404) if is_head_of(asked, "g") else None
    assert relisted(there) == []
    assert errno_of(load, there / "g") == "EIO"
    assert errno_of(os.unlink, there / "g") == "EIO"
    assert server.get(f"{prefix}/g") == b"the real one"
    server.faults = lambda *_: None
    server.delete(f"{prefix}/g/")
    assert relisted(there) == ["g"]
    assert load(there / "g") == b"the real one"


def test_an_origin_that_does_not_say_is_no_listing(shared: Mount, server: OriginServer) -> None:
    there, _ = namespace(shared, server, {"zero": b"", "other": b"other"})
    server.faults = lambda asked, _: Fault(status=503) if asked.method == "HEAD" else None
    assert errno_of(os.listdir, there) == "EIO"
    server.faults = lambda asked, _: Fault(status=403) if asked.method == "HEAD" else None
    assert os.listdir(there) == ["other"]
    assert errno_of(os.stat, there / "zero") == "EIO"
    assert list(refused(shared, there)) == ["zero"]


def test_what_was_asked_is_not_asked_again(shared: Mount, server: OriginServer) -> None:
    files = {f"z{number}": b"" for number in range(20)} | {"e/": b"", "f": b"f"}
    there, _ = namespace(shared, server, files, origin_changes="revalidate=0")
    assert len(relisted(there)) == 22
    assert sum(asked.method == "HEAD" for asked in server.asked) == 21
    server.asked.clear()
    assert len(relisted(there)) == 22
    assert not [asked for asked in server.asked if asked.method == "HEAD"]


def test_a_file_and_what_is_below_its_name(shared: Mount, server: OriginServer) -> None:
    """The name is a directory; the file isn't to be had, and nothing that is done to the directory reaches it."""
    files = {"a": b"the file", "a/b": b"below", "c": b"", "c/": b"", "c/d": b"below"}
    there, prefix = namespace(shared, server, files, **WRITING)
    for name, below in (("a", "b"), ("c", "d")):
        assert (there / name).is_dir()
        assert os.listdir(there / name) == [below]
        assert load(there / name / below) == b"below"
        assert errno_of(os.unlink, there / name) == "EISDIR"
        (there / name / below).unlink()
    assert server.get(f"{prefix}/a") == b"the file"
    assert {"a", "c", "c/"} <= set(server.keys(prefix))


def test_a_marked_directory_stays(shared: Mount, server: OriginServer) -> None:
    """Its mark can't be removed by name: that would be the file of that name."""
    there, prefix = namespace(shared, server, {"e/": b""}, **WRITING)
    assert errno_of(os.rmdir, there / "e") == "EPERM"
    put(there / "e" / "f", b"f")
    assert server.get(f"{prefix}/e/f") == b"f"
    (there / "e" / "f").unlink()
    assert errno_of(os.rmdir, there / "e") == "EPERM"
    assert errno_of(store, there / "e", b"") == "EISDIR"
    assert server.keys(prefix) == ["e/"]


def test_a_mark_that_has_bytes(shared: Mount, server: OriginServer) -> None:
    """It looks like a file, and is none that can be read; nothing else suffers."""
    there, prefix = namespace(shared, server, {"d/": b"bytes", "f": b"f"}, **WRITING)
    assert errno_of(load, there / "d") in ("ENOENT", "EIO")
    (there / "d").unlink()
    assert load(there / "f") == b"f"
    assert set(server.keys(prefix)) == {"d/", "f"}


def test_an_empty_object_that_is_replaced(shared: Mount, server: OriginServer) -> None:
    """Files without bytes are checked as others are: what is gone or has bytes by now isn't taken for the empty one."""
    there, prefix = namespace(shared, server, {"zero": b"", "gone": b""})
    assert sorted(os.listdir(there)) == ["gone", "zero"]
    server.put(f"{prefix}/zero", b"bytes by now")
    server.delete(f"{prefix}/gone")
    assert load(there / "zero") == b"bytes by now"
    assert errno_of(load, there / "gone") == "ENOENT"


NAMES = [
    *("a%2Fb", "a%41", "a%", "a b", " a", "a ", "a+b", "a#1", "a?b", "a*", "a\\b", "a~", "a&b", "a'b", 'a"b', "a:b"),
    *("\u00fc", "u\u0308", "\U0001f600", "A", "a", "...", "a.", "-"),
]


def test_each_odd_name_is_its_own(shared: Mount, server: OriginServer) -> None:
    """None of them is read, written or removed as another one: not decoded, trimmed or normalised."""
    files = {name: content(f"odd {name}", 100) for name in NAMES}
    there, prefix = namespace(shared, server, files, **WRITING)
    assert sorted(os.listdir(there)) == sorted(NAMES)
    assert {name: load(there / name) for name in NAMES} == files
    for name in NAMES:
        put(there / name, name.encode())
    assert {name: server.get(f"{prefix}/{name}") for name in NAMES} == {name: name.encode() for name in NAMES}
    for number, name in enumerate(NAMES):
        (there / name).unlink()
        left = [other for other in NAMES if server.get(f"{prefix}/{other}") is not None]
        assert left == NAMES[number + 1 :]


@pytest.mark.parametrize("bad", ["x//y", "x/./y", "x/../y", "x/y//", "x/new\nline/y"])
def test_a_key_that_no_path_is_spoils_its_directory_alone(shared: Mount, gcs: Gcs, s3: S3, bad: str) -> None:
    server = gcs if "\n" in bad else s3  # each has keys that the other one's server doesn't take
    files = {"a": b"a", "x/fine": b"fine", "deep/down/f": b"f", "e/": b"", "g": b"g", "g/": b"", bad: b"bad"}
    there, prefix = namespace(shared, server, files, **WRITING)
    assert load(there / "a") == b"a"
    assert load(there / "deep" / "down" / "f") == b"f"
    assert load(there / "g") == b"g"
    assert (there / "e").is_dir()
    put(there / "deep" / "new", b"new")
    assert server.get(f"{prefix}/deep/new") == b"new"
    (spoiled,) = refused(shared, there)
    assert bad.startswith(spoiled)
    assert errno_of(os.listdir, there / spoiled) == "EIO"
    assert errno_of(store, there / spoiled / "new", b"new") == "EIO"
    assert server.get(f"{prefix}/{bad}") == b"bad"


@pytest.mark.parametrize("bad", ["/y", "./y", "../y"])
def test_such_a_key_at_the_top_fails_the_listing(shared: Mount, s3: S3, bad: str) -> None:
    there, prefix = namespace(shared, s3, {"a": b"a", bad: b"bad"}, **WRITING)
    assert errno_of(load, there / "a") == "EIO"
    error = origin_status(shared, there)["last_error"]
    assert f"{prefix}/{bad[:-1]}" in error
    assert error.endswith("; rename or remove it at the origin")


def test_a_size_that_no_file_has_refuses_that_object_alone() -> None:
    """As a server that isn't well lists it: the kernel's own sizes end there."""
    found = Found()
    for key, size in (("d/good", 5), ("d/huge", 1 << 63), ("d/below", -1), ("d/most", (1 << 63) - 1)):
        found.add(Listed(key, size, 0, '"e"'))
    found.settle()
    assert {path[-1]: listed.size for path, listed in found.files.items()} == {b"good": 5, b"most": (1 << 63) - 1}
    assert set(found.refused) == {(b"d", b"huge"), (b"d", b"below")}
    assert f"{1 << 63} bytes" in found.refused[b"d", b"huge"]
