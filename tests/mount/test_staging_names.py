"""Names matching a staging pattern wait, whole and unlisted, for the rename or link that publishes them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lab.harness.actors import Actor, errno_of, eventually, load, pattern, put

CONTENT = pattern("staging", 300_000)


def test_the_store_of_fs_native(kv: Path) -> None:
    """stat, write to .tmp, close, rename: absent, absent, absent, whole; never seen by a listing before."""
    tmp, final = kv / "key.tmp", kv / "key.data"
    with Actor() as writer:
        assert errno_of(writer.stat, final) == "ENOENT"
        fd = writer.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        writer.write_all(fd, CONTENT)
        assert errno_of(os.stat, tmp) == "ENOENT"
        assert errno_of(os.open, tmp, os.O_RDONLY) == "ENOENT"
        assert os.listdir(kv) == []
        writer.close(fd)
        assert os.listdir(kv) == []
        assert errno_of(os.stat, final) == "ENOENT"
        writer.rename(tmp, final)
        assert load(final) == CONTENT
        assert os.listdir(kv) == ["key.data"]
        assert errno_of(os.stat, tmp) == "ENOENT"
        assert errno_of(writer.stat, tmp) == "ENOENT"


def test_the_tmp_directory_beside_the_keys(kv: Path) -> None:
    """fs_native with relative_tmp_dir renames from a directory; the name has no pattern there, so close publishes."""
    (kv / "tmp").mkdir()
    with Actor() as writer:
        writer.store(kv / "tmp" / "key.data", CONTENT)
        writer.rename(kv / "tmp" / "key.data", kv / "key.data")
    assert load(kv / "key.data") == CONTENT
    assert os.listdir(kv / "tmp") == []


def test_cp_then_mv_in_a_shell(kv: Path) -> None:
    """Two processes, one after the other: mv publishes what cp closed."""
    (kv / "x").write_bytes(CONTENT)
    subprocess.run(["sh", "-ec", "cp x f.tmp && mv f.tmp f"], cwd=kv, check=True)
    assert load(kv / "f") == CONTENT
    assert sorted(os.listdir(kv)) == ["f", "x"]


def test_close_does_not_publish_a_staging_name(kv: Path) -> None:
    """Closed, it is visible by name to everybody, listed to nobody, and no committed object."""
    with Actor() as writer, Actor() as other:
        inode = writer.store(kv / "a.tmp", CONTENT)
        assert writer.stat(kv / "a.tmp").st_ino == inode
        assert other.stat(kv / "a.tmp").st_size == len(CONTENT)
        assert other.load(kv / "a.tmp") == CONTENT
        assert writer.listdir(kv) == other.listdir(kv) == []


def test_another_process_publishes_what_was_closed(kv: Path) -> None:
    """The writer may be gone by itself; whoever sees the version may rename it."""
    with Actor() as writer:
        inode = writer.store(kv / "a.tmp", CONTENT)
        assert writer.leave() == 0
    assert os.stat(kv / "a.tmp").st_ino == inode
    os.rename(kv / "a.tmp", kv / "a")
    assert os.stat(kv / "a").st_ino == inode
    assert load(kv / "a") == CONTENT


@pytest.mark.parametrize("first", ["one", "two"])
def test_two_servers_on_one_temporary_name(kv: Path, first: str) -> None:
    """Each writes, closes and renames its own: both succeed, and no byte of one is in the object of the other."""
    contents = {"one": pattern("one", 500_000), "two": pattern("two", 200_000)}
    tmp, final = kv / "key.tmp", kv / "key.data"
    with Actor() as one, Actor() as two:
        servers = {"one": one, "two": two}
        handles = {name: server.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for name, server in servers.items()}
        for start in range(0, 500_000, 100_000):
            for name, server in servers.items():
                server.write_all(handles[name], contents[name][start : start + 100_000])
        for name, server in servers.items():
            assert server.stat(tmp).st_size == len(contents[name])
        for name in sorted(servers, key=lambda name: name != first):
            servers[name].close(handles[name])
            assert servers[name].load(tmp) == contents[name]
            servers[name].rename(tmp, final)
            assert load(final) == contents[name]
    assert os.listdir(kv) == ["key.data"]


def test_both_close_before_either_renames(kv: Path) -> None:
    """A rename takes the caller's own version, not the one closed last."""
    ours, theirs = pattern("ours", 70_000), pattern("theirs", 60_000)
    with Actor() as one, Actor() as two:
        one.store(kv / "k.tmp", ours)
        two.store(kv / "k.tmp", theirs)
        one.rename(kv / "k.tmp", kv / "k")
        assert load(kv / "k") == ours
        two.rename(kv / "k.tmp", kv / "k")
        assert load(kv / "k") == theirs


def test_a_third_process_sees_the_version_closed_last(kv: Path) -> None:
    """What others staged under the name is offered newest first."""
    with Actor() as one, Actor() as two, Actor() as third:
        first = one.open(kv / "k.tmp", os.O_WRONLY | os.O_CREAT)
        one.write(first, b"opened first, closed last")
        two.store(kv / "k.tmp", b"opened last, closed first")
        assert third.load(kv / "k.tmp") == b"opened last, closed first"
        one.close(first)
        assert third.load(kv / "k.tmp") == b"opened first, closed last"
        assert two.load(kv / "k.tmp") == b"opened last, closed first"
        third.rename(kv / "k.tmp", kv / "k")
        assert load(kv / "k") == b"opened first, closed last"
        third.rename(kv / "k.tmp", kv / "k")
        assert load(kv / "k") == b"opened last, closed first"
        assert errno_of(third.rename, kv / "k.tmp", kv / "k") == "ENOENT"


def test_a_committed_object_behind_a_staging_name(kv: Path) -> None:
    """The caller's own version, else a closed one of another process, else the committed object; unlink takes all."""
    put(kv / "x", b"committed")
    os.rename(kv / "x", kv / "x.tmp")
    with Actor() as writer:
        fd = writer.open(kv / "x.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        writer.write(fd, b"staged by the other")
        assert load(kv / "x.tmp") == b"committed"
        assert writer.load(kv / "x.tmp") == b"staged by the other"
        writer.close(fd)
        assert load(kv / "x.tmp") == b"staged by the other"
        assert os.listdir(kv) == ["x.tmp"]
        os.unlink(kv / "x.tmp")
        assert errno_of(os.stat, kv / "x.tmp") == errno_of(writer.stat, kv / "x.tmp") == "ENOENT"
        assert os.listdir(kv) == []


def test_from_one_staging_name_to_another(kv: Path) -> None:
    """It goes on waiting under the new name."""
    with Actor() as writer:
        writer.store(kv / "a.tmp", CONTENT)
        writer.rename(kv / "a.tmp", kv / "b.tmp")
        assert os.listdir(kv) == []
        assert errno_of(os.stat, kv / "a.tmp") == "ENOENT"
        assert load(kv / "b.tmp") == CONTENT
        writer.rename(kv / "b.tmp", kv / "c")
    assert load(kv / "c") == CONTENT
    assert os.listdir(kv) == ["c"]


def test_reopened_and_written_further(kv: Path) -> None:
    """A closed version of one's own is opened again and written in place: still one version, one inode."""
    with Actor() as writer:
        inode = writer.store(kv / "a.tmp", b"begin ")
        fd = writer.open(kv / "a.tmp", os.O_WRONLY | os.O_APPEND)
        writer.write(fd, b"end")
        assert writer.fstat(fd).st_ino == inode
        assert errno_of(writer.link, kv / "a.tmp", kv / "a") == "EPERM"
        writer.close(fd)
        writer.rename(kv / "a.tmp", kv / "a")
        assert load(kv / "a") == b"begin end"


def test_exclusive_creation_as_vllm_does(kv: Path) -> None:
    """A random .tmp with O_EXCL, an xattr on it, replace: one writer a name, and the xattr goes along."""
    tmp = kv / "dest_8f2a.tmp"
    with Actor() as writer, Actor() as other:
        fd = writer.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        assert errno_of(other.open, tmp, os.O_WRONLY | os.O_CREAT | os.O_EXCL) == "EEXIST"
        writer.write(fd, CONTENT)
        writer.setxattr(tmp, "user.vllm.checksum", b"\x00\xff12")
        writer.close(fd)
        assert errno_of(other.open, tmp, os.O_WRONLY | os.O_CREAT | os.O_EXCL) == "EEXIST"
        writer.replace(tmp, kv / "dest")
    assert os.getxattr(kv / "dest", "user.vllm.checksum") == b"\x00\xff12"
    assert load(kv / "dest") == CONTENT


def test_the_direct_io_probe(kv: Path) -> None:
    """O_DIRECT creation of a .tmp, one block, unlink: works, and nothing is left."""
    probe = kv / ".o_direct_probe_x.tmp"
    with Actor() as prober:
        fd = prober.open(probe, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT)
        assert prober.pwrite_direct(fd, bytes(4096), 0) == 4096
        prober.close(fd)
        prober.unlink(probe)
        assert errno_of(prober.stat, probe) == "ENOENT"
        assert os.listdir(kv) == []
        prober.rmdir(kv)


def test_unlink_of_a_staged_name(kv: Path) -> None:
    """fs_native after an error: the name is gone for everybody."""
    with Actor() as writer, Actor() as other:
        writer.store(kv / "a.tmp", CONTENT)
        writer.unlink(kv / "a.tmp")
        assert errno_of(writer.stat, kv / "a.tmp") == "ENOENT"
        assert errno_of(other.stat, kv / "a.tmp") == "ENOENT"
        assert errno_of(writer.rename, kv / "a.tmp", kv / "a") == "ENOENT"
        writer.store(kv / "b.tmp", CONTENT)
        other.unlink(kv / "b.tmp")
        assert errno_of(writer.stat, kv / "b.tmp") == "ENOENT"


def test_slow_writing_is_a_miss_until_it_is_whole(kv: Path) -> None:
    """64 MiB in steps; another process polls both names all the while: ENOENT, ENOENT, ..., then every byte."""
    tmp, final, content = kv / "k.tmp", kv / "k.data", pattern("slow", 64 << 20)
    with Actor() as writer, Actor() as poller:
        fd = writer.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for start in range(0, len(content), 1 << 20):
            writer.write_all(fd, content[start : start + (1 << 20)])
            assert errno_of(poller.stat, tmp) == errno_of(poller.stat, final) == "ENOENT"
            assert errno_of(poller.open, final, os.O_RDONLY) == "ENOENT"
        writer.close(fd)
        assert errno_of(poller.stat, final) == "ENOENT"
        writer.rename(tmp, final)
        assert poller.stat(final).st_size == len(content)
        assert poller.load(final) == content
    os.unlink(final)


def test_an_ordinary_name_waits_for_close_only(kv: Path) -> None:
    """Without a staging name the close publishes."""
    with Actor() as writer:
        fd = writer.open(kv / "plain", os.O_WRONLY | os.O_CREAT)
        writer.write(fd, CONTENT)
        assert errno_of(os.stat, kv / "plain") == "ENOENT"
        assert os.listdir(kv) == []
        writer.close(fd)
        eventually(lambda: os.listdir(kv) == ["plain"], "published by close")
        assert load(kv / "plain") == CONTENT
