"""What the kernel may keep, and what it must forget: names, absent names, attributes, pages."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from lab.harness.actors import Actor, errno_of, eventually, load, pattern, put, store
from lab.harness.mounts import Mount

CONTENT = pattern("cached", 2_000_000)


def counted(mount: Mount, counter: str, action: Callable[[], object]) -> int:
    """By how much the action raises a counter; reading the status is taken off."""
    mount.status()
    first, second = (mount.status()["counters"][counter] for _ in range(2))
    action()
    return int(mount.status()["counters"][counter]) - second - (second - first)


def test_committed_names_and_attributes_are_kept(shared_mount: Mount, kv: Path) -> None:
    """A thousand questions, asked by two processes: the daemon hears of a handful at most."""
    put(kv / "x", CONTENT)
    with Actor() as other:

        def ask() -> None:
            for _ in range(500):
                assert os.stat(kv / "x").st_size == other.stat(kv / "x").st_size == len(CONTENT)

        assert counted(shared_mount, "lookups", ask) <= 4


def test_absent_names_are_kept_as_absent(shared_mount: Mount, kv: Path) -> None:
    """The same for names that aren't there."""
    with Actor() as other:

        def ask() -> None:
            for _ in range(500):
                assert errno_of(os.stat, kv / "absent") == errno_of(other.stat, kv / "absent") == "ENOENT"

        assert counted(shared_mount, "lookup_misses", ask) <= 2


def test_pages_are_kept_over_opens(shared_mount: Mount, kv: Path) -> None:
    """A committed object that was read once is read again without the daemon."""
    put(kv / "x", CONTENT)
    with Actor() as other:
        assert other.load(kv / "x") == CONTENT
        assert counted(shared_mount, "read_bytes", lambda: (load(kv / "x"), other.load(kv / "x"))) == 0


def test_direct_reads_leave_no_pages(shared_mount: Mount, kv: Path) -> None:
    """They reach the daemon each time."""
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
        writer.pwrite_direct(fd, CONTENT[:1_048_576], 0)
        writer.close(fd)
        eventually(lambda: errno_of(os.stat, kv / "x") == "ok", "published")
    with Actor() as reader:
        for _ in range(2):
            assert counted(shared_mount, "read_bytes", lambda: reader.load_direct(kv / "x")) == 1_048_576


def test_an_absent_name_appears_when_it_is_published(kv: Path) -> None:
    """Asked for, and cached as absent, before, while and after another process stages it."""
    with Actor() as writer, Actor() as other:
        for number in range(20):
            name = kv / f"{number}"
            for _ in range(3):
                assert errno_of(os.stat, name) == errno_of(other.stat, name) == "ENOENT"
            fd = writer.open(name, os.O_WRONLY | os.O_CREAT)
            for _ in range(3):
                assert errno_of(os.stat, name) == errno_of(other.stat, name) == "ENOENT"
            writer.write(fd, b"content")
            assert errno_of(other.stat, name) == "ENOENT"
            writer.close(fd)
            eventually(lambda name=name: errno_of(other.stat, name) == "ok", "the absent name is forgotten")
            assert os.stat(name).st_size == 7
            os.unlink(name)
            assert errno_of(writer.stat, name) == errno_of(other.stat, name) == "ENOENT"


def test_a_replacement_is_seen_by_who_had_the_old_one_cached(kv: Path) -> None:
    """By rename at once; by close as soon as RELEASE has come. Names, sizes, pages: all of the same object."""
    with Actor() as writer, Actor() as other:
        for number in range(20):
            content = pattern(number, 1000 + number)
            if number % 2:
                put(kv / "x", content)
            else:
                writer.store(kv / "x", content)
                eventually(lambda content=content: errno_of(other.stat, kv / "x") == "ok", "published")
                eventually(lambda content=content: other.load(kv / "x") == content, "published")
            assert other.load(kv / "x") == load(kv / "x") == content
            assert other.stat(kv / "x").st_size == os.stat(kv / "x").st_size == len(content)


def test_two_processes_alternate_on_a_staged_name(kv: Path) -> None:
    """One name, two answers, 300 times over: each process has its own, in stat, open and listing."""
    put(kv / "x", b"committed")
    with Actor() as writer, Actor() as other:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_TRUNC)
        writer.write(fd, b"staged, and longer")
        own = writer.fstat(fd).st_ino
        for _ in range(300):
            assert other.stat(kv / "x").st_size == 9
            seen = writer.stat(kv / "x")
            assert (seen.st_ino, seen.st_size) == (own, 18)
        for _ in range(50):
            assert other.load(kv / "x") == b"committed"
            assert writer.load(kv / "x") == b"staged, and longer"
            assert other.listdir(kv) == writer.listdir(kv) == ["x"]
            assert writer.stat(kv / "x").st_size == 18
        writer.close(fd)


def test_listing_beside_a_staged_version(kv: Path) -> None:
    """ls -l (readdirplus) shows the committed object's size, also in the directory of the writer that lists its own."""
    put(kv / "x", b"committed")
    with Actor() as writer, Actor() as other:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_TRUNC)
        new = writer.open(kv / "new", os.O_WRONLY | os.O_CREAT)
        writer.write(fd, b"staged, and longer")
        writer.write(new, b"123")
        for _ in range(30):
            assert {name: other.stat(kv / name).st_size for name in other.listdir(kv)} == {"x": 9}
            assert set(writer.listdir(kv)) == {"x", "new"}
            assert writer.stat(kv / "x").st_size == 18
            assert writer.stat(kv / "new").st_size == 3
            assert errno_of(other.stat, kv / "new") == "ENOENT"


def test_an_abandoned_version_leaves_the_old_object(kv: Path) -> None:
    """Its writer killed: the name shows the committed object to everybody, again from the cache."""
    put(kv / "x", b"committed")
    with Actor() as writer, Actor() as other:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_TRUNC)
        writer.write(fd, b"never to be seen")
        assert other.load(kv / "x") == b"committed"
        writer.kill()
        assert other.load(kv / "x") == load(kv / "x") == b"committed"
        assert other.stat(kv / "x").st_size == 9


def test_attribute_changes_are_seen_by_others_at_once(kv: Path) -> None:
    """Attributes that the kernel keeps are those after chmod, chown, utimens and link by another process."""
    put(kv / "x", CONTENT)
    with Actor() as one, Actor() as two:
        for mode in (0o600, 0o640, 0o644):
            one.chmod(kv / "x", mode)
            assert two.stat(kv / "x").st_mode & 0o7777 == mode
        for number in range(3):
            one.link(kv / "x", kv / f"link{number}")
            assert two.stat(kv / "x").st_nlink == number + 2
            assert two.stat(kv / "link0").st_nlink == number + 2
        for number in range(3):
            one.unlink(kv / f"link{number}")
            assert two.stat(kv / "x").st_nlink == 3 - number


def test_size_of_ones_own_version_is_never_stale(kv: Path) -> None:
    """The writer's stat and fstat follow each of its writes."""
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_WRONLY | os.O_CREAT)
        for number in range(1, 100):
            writer.write(fd, b"0123456789")
            assert writer.fstat(fd).st_size == writer.stat(kv / "x").st_size == 10 * number
        writer.ftruncate(fd, 5)
        assert writer.fstat(fd).st_size == writer.stat(kv / "x").st_size == 5


def test_pages_of_a_version_become_those_of_the_object(kv: Path) -> None:
    """Written, read, mapped and overwritten by its writer, then read by others: the last bytes everywhere."""
    with Actor() as writer:
        fd = writer.open(kv / "x", os.O_RDWR | os.O_CREAT)
        writer.write_all(fd, CONTENT)
        assert writer.pread(fd, 4_000_000, 0) == CONTENT
        mapping = writer.map_file(fd, len(CONTENT))
        assert writer.map_read(mapping) == CONTENT
        writer.pwrite(fd, b"changed", 999_999)
        assert writer.map_read(mapping, 999_999, 1_000_006) == b"changed"
        writer.ftruncate(fd, 1_500_000)
        writer.close(fd)
        writer.unmap(mapping)
        eventually(lambda: errno_of(os.stat, kv / "x") == "ok", "published")
    assert load(kv / "x") == CONTENT[:999_999] + b"changed" + CONTENT[1_000_006:1_500_000]


def test_removed_and_made_again(kv: Path) -> None:
    """unlink and create by turns in two processes: neither is fooled by what the kernel kept."""
    with Actor() as one, Actor() as two:
        for number in range(40):
            maker, remover = (one, two) if number % 2 else (two, one)
            maker.store(kv / "k.tmp", b"%d" % number)
            maker.rename(kv / "k.tmp", kv / "k")
            assert remover.load(kv / "k") == b"%d" % number
            remover.unlink(kv / "k")
            assert errno_of(maker.stat, kv / "k") == errno_of(remover.stat, kv / "k") == "ENOENT"
    assert os.listdir(kv) == []
    assert errno_of(store, kv / "k", b"x") == "ok"
