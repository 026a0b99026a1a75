"""FLUSH seals, RELEASE publishes: duplicates, children, mappings after close, renames of open versions, failures."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.harness.actors import Actor, errno_of, eventually, load, pattern, put
from lab.harness.mounts import Mount

CONTENT = pattern("publishing", 300_000)


def published(path: Path, content: bytes) -> bool:
    """Whether the name shows exactly the content by now."""
    return errno_of(os.stat, path) == "ok" and load(path) == content


@pytest.mark.parametrize(
    ("script", "content"),
    [
        ("echo one > f", b"one\n"),
        ("(echo one; echo two) > f", b"one\ntwo\n"),
        ("{ echo one; sh -c 'echo two'; echo three; } > f", b"one\ntwo\nthree\n"),
        ("echo one > f; echo two >> f; echo three >> f", b"one\ntwo\nthree\n"),
        ("exec 3>f; echo one >&3; (echo two) >&3; exec 3>&-", b"one\ntwo\n"),
        ("exec 3>f 4>&3; exec 3>&-; echo late >&4", b"late\n"),
        ("echo one | tee f | cat > g; cmp f g", b"one\n"),
        ("(sleep 0.3; echo late) > f & echo early", b"late\n"),
        ("echo old > f; (cat f; echo new) > g; mv g f", b"old\nnew\n"),
        ("for i in 1 2 3; do echo $i; done > f", b"1\n2\n3\n"),
        ("seq 1 3 > f; : > f", b""),
        ("seq 1 3 > f; sed -i s/2/two/ f", b"1\ntwo\n3\n"),
        ("printf aaaa > f; printf b | dd of=f bs=1 seek=2 conv=notrunc status=none", b"aaba"),
        ("exec 3<>f; printf abc >&3; exec 3>&-; cat f > g; mv g f", b"abc"),
        ("{ printf abc; dd if=/dev/zero bs=1 count=2 status=none; } > f", b"abc\0\0"),
        ("python3 -c 'print(1)' > f", b"1\n"),
    ],
)
def test_shell_redirections(kv: Path, script: str, content: bytes) -> None:
    """Each command of a redirected group closes a duplicate before the next one writes."""
    subprocess.run(["sh", "-ec", script], cwd=kv, check=True, stdout=subprocess.DEVNULL)
    eventually(lambda: published(kv / "f", content), "the redirection's output is published")


def test_a_redirected_group_is_a_miss_until_its_end(kv: Path) -> None:
    """In ( a; b ) > f nothing of a is seen by others before b is done."""
    script = "(echo a; read line; echo b) > f"
    shell = subprocess.Popen(["bash", "-ec", script], cwd=kv, stdin=subprocess.PIPE)
    with shell:
        staged = kv.parent / ".hcfs" / "staged"
        eventually(lambda: f"{kv.name}/f" in staged.read_text(), "the group has begun")
        assert errno_of(os.stat, kv / "f") == "ENOENT"
        shell.communicate(b"go on\n", 30)
    eventually(lambda: published(kv / "f", b"a\nb\n"), "published")


def test_close_of_a_duplicate_publishes_nothing(kv: Path) -> None:
    """Every close flushes; only the last one publishes."""
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_CREAT)
        for number in range(5):
            writer.close(writer.dup(fd))
            assert errno_of(os.stat, kv / "x") == "ENOENT"
            writer.write(fd, b"%d" % number)
            writer.close(writer.dup(fd))
        writer.close(fd)
        eventually(lambda: published(kv / "x", b"01234"), "published by the last close")


def test_written_through_a_mapping_after_close(kv: Path) -> None:
    """The mapping holds the file open: its stores are part of what is published when it goes."""
    expected = bytearray(CONTENT)
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_RDWR | os.O_CREAT)
        writer.write_all(fd, CONTENT)
        mapping = writer.map_file(fd, len(CONTENT), True)
        writer.close(fd)
        for offset in (0, 4090, 150_000, len(CONTENT) - 6):
            writer.map_write(mapping, offset, b"mapped")
            expected[offset : offset + 6] = b"mapped"
        assert errno_of(os.stat, kv / "x") == "ENOENT"
        assert writer.map_read(mapping) == expected
        writer.unmap(mapping)
        eventually(lambda: errno_of(os.stat, kv / "x") == "ok", "published when the mapping goes")
        assert load(kv / "x") == expected


def test_written_through_a_mapping_of_an_old_object(kv: Path) -> None:
    """The same over a committed object, which its readers keep; the process exits with the mapping in place."""
    put(kv / "x", CONTENT)
    expected = b"mapped" + CONTENT[6:]
    handle = os.open(kv / "x", os.O_RDONLY)
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_RDWR)
        mapping = writer.map_file(fd, len(CONTENT), True)
        writer.close(fd)
        writer.map_write(mapping, 0, b"mapped")
        assert load(kv / "x") == CONTENT
        writer.leave()
    eventually(lambda: published(kv / "x", expected), "published at exit")
    assert os.pread(handle, 1 << 20, 0) == CONTENT
    os.close(handle)


def test_rename_of_a_sealed_version_publishes_it(kv: Path) -> None:
    """Flushed, and not written since: a rename publishes at once, and the handle's next write is EIO."""
    with Actor() as writer, Actor() as other:
        fd = writer.open(kv / "k.tmp", os.O_RDWR | os.O_CREAT)
        writer.write_all(fd, CONTENT)
        writer.close(writer.dup(fd))
        writer.rename(kv / "k.tmp", kv / "k")
        assert other.load(kv / "k") == CONTENT
        assert errno_of(writer.write, fd, b"late") == "EIO"
        assert writer.pread(fd, 1000, 0) == CONTENT[:1000]
        assert errno_of(writer.ftruncate, fd, 5) == "EIO"
        writer.close(fd)
        assert other.load(kv / "k") == CONTENT


def test_rename_of_a_version_being_written_moves_its_staged_name(kv: Path) -> None:
    """Written since the last FLUSH: others see neither name until the close, which publishes the new one."""
    with Actor() as writer, Actor() as other:
        fd = writer.open(kv / "a", os.O_WRONLY | os.O_CREAT)
        writer.write(fd, b"before ")
        writer.rename(kv / "a", kv / "b")
        assert errno_of(other.stat, kv / "a") == errno_of(other.stat, kv / "b") == "ENOENT"
        assert errno_of(writer.stat, kv / "a") == "ENOENT"
        assert writer.stat(kv / "b").st_size == 7
        writer.write(fd, b"after")
        writer.close(fd)
        eventually(lambda: published(kv / "b", b"before after"), "published under the new name")
        assert os.listdir(kv) == ["b"]


def test_rename_of_an_open_tmp_onto_a_final_name(kv: Path) -> None:
    """Moved while being written, it has no staging name any more: its close publishes, over the old object."""
    put(kv / "k", b"old")
    with Actor() as writer:
        fd = writer.open(kv / "k.tmp", os.O_WRONLY | os.O_CREAT)
        writer.write(fd, b"first ")
        writer.rename(kv / "k.tmp", kv / "k")
        assert load(kv / "k") == b"old"
        writer.write(fd, b"second")
        writer.close(fd)
        eventually(lambda: published(kv / "k", b"first second"), "published by the close")


def test_link_of_a_sealed_version_publishes_it(kv: Path) -> None:
    """Newer publishers link, so as not to replace, and unlink the temporary name."""
    with Actor() as writer:
        writer.store(kv / "k.tmp", CONTENT)
        writer.link(kv / "k.tmp", kv / "k")
        assert load(kv / "k") == CONTENT
        writer.unlink(kv / "k.tmp")
        assert errno_of(os.stat, kv / "k.tmp") == "ENOENT"
        assert os.stat(kv / "k").st_nlink == 1
        writer.store(kv / "k.tmp", b"another")
        assert errno_of(writer.link, kv / "k.tmp", kv / "k") == "EEXIST"
        assert load(kv / "k") == CONTENT
        assert writer.load(kv / "k.tmp") == b"another"
        writer.unlink(kv / "k.tmp")
    assert os.listdir(kv) == ["k"]


def test_link_of_a_version_being_written(kv: Path) -> None:
    """EPERM, and nothing appears."""
    with Actor() as writer:
        fd = writer.open(kv / "k.tmp", os.O_WRONLY | os.O_CREAT)
        writer.write(fd, b"unfinished")
        assert errno_of(writer.link, kv / "k.tmp", kv / "k") == "EPERM"
        assert errno_of(os.stat, kv / "k") == "ENOENT"
        writer.close(writer.dup(fd))
        writer.link(kv / "k.tmp", kv / "k")
        assert load(kv / "k") == b"unfinished"


def test_unlink_of_an_unpublished_version(kv: Path) -> None:
    """The handle goes on, close is 0, nothing is published, and the space is back."""
    with Actor() as writer:
        for data in (b"", CONTENT):
            fd = writer.open(kv / "x", os.O_RDWR | os.O_CREAT)
            writer.write_all(fd, data)
            writer.unlink(kv / "x")
            assert writer.fstat(fd).st_nlink == 0
            writer.write_all(fd, data)
            assert writer.pread(fd, 1 << 20, 0) == data + data
            writer.close(fd)
            assert os.listdir(kv) == []
            assert errno_of(writer.stat, kv / "x") == "ENOENT"


def test_a_failed_write_publishes_nothing(make_mount: Callable[..., Mount]) -> None:
    """With everything pinned the store fails at write or close, and then at the rename that fs_native would do in any
    case.
    """
    mount = make_mount(size="64M", options="lookup_grace=0")
    kv = mount.ns()
    for number in range(20):
        put(kv / f"pinned{number}", pattern(number, 1 << 20))
    handles = [os.open(kv / f"pinned{number}", os.O_RDONLY) for number in range(20)]
    put(kv / "k", b"the older object")
    handles.append(os.open(kv / "k", os.O_RDONLY))
    with Actor() as writer:
        fd = writer.open(kv / "k.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        failures = {errno_of(writer.write_all, fd, bytes(100 << 20)), errno_of(writer.close, fd)}
        assert "ENOSPC" in failures
        assert errno_of(writer.rename, kv / "k.tmp", kv / "k") != "ok"
        assert load(kv / "k") == b"the older object"
        fd = writer.open(kv / "plain", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        assert "ENOSPC" in {errno_of(writer.write_all, fd, bytes(100 << 20)), errno_of(writer.close, fd)}
        eventually(lambda: mount.status()["staged_bytes"] == 0, "what failed gives its space back")
        assert sorted(os.listdir(kv)) == sorted(["k", *(f"pinned{number}" for number in range(20))])
    for handle in handles:
        os.close(handle)
    put(kv / "k", b"a newer object")
    assert load(kv / "k") == b"a newer object"


def test_closing_does_not_wait_behind_reads(shared_mount: Mount, tmp_path: Path) -> None:
    """RELEASE shares the background queue with direct reads; its length is raised from 12 to 256 or more."""
    connections = tmp_path / "connections"
    connections.mkdir()
    subprocess.run(["mount", "-t", "fusectl", "none", connections], check=True)
    try:
        minor = os.minor(os.stat(shared_mount.dir).st_dev)
        assert int((connections / str(minor) / "max_background").read_text()) >= 256
    finally:
        subprocess.run(["umount", connections], check=True)
