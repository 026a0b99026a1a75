"""ls, rm, cp, rsync, tar, mv, find on a namespace as on any directory: exit code 0, right contents."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.harness.actors import digest, load, pattern
from lab.harness.mounts import Mount

MANY = 10_000


@pytest.fixture
def roomy(make_mount: Callable[..., Mount]) -> Mount:
    """A mount with room for some ten thousand objects and more."""
    return make_mount(size="512M", mkfs=("--max-objects", "40000"))


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """A tool that succeeds and says nothing on stderr; returns its stdout."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=150)
    assert (done.returncode, done.stderr) == (0, ""), f"{command[0]} exited with {done.returncode}: {done.stderr[:300]}"
    return done.stdout


def make_many(directory: Path, count: int) -> None:
    """Small objects, each by its own name."""
    directory.mkdir(exist_ok=True)
    for number in range(count):
        fd = os.open(directory / f"{number:05}.data", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(fd, b"%d" % number)
        os.close(fd)


@pytest.mark.timeout(600)
def test_ten_thousand_objects(roomy: Mount) -> None:
    """Listed, once each, in every way; in a time that grows like their number; then removed by rm -rf."""
    kv = roomy.ns()
    make_many(kv / "few", MANY // 10)
    make_many(kv / "many", MANY)
    names = [f"{number:05}.data" for number in range(MANY)]
    assert run("ls", kv / "many").splitlines() == names
    assert len(run("ls", "-l", kv / "many").splitlines()) == MANY + 1
    assert len(run("find", kv / "many", "-type", "f", "-size", "-2").splitlines()) == MANY
    with os.scandir(kv / "many") as entries:
        assert sorted(entry.name for entry in entries) == names
    times = {}
    for directory in ("few", "many"):
        begun = time.monotonic()
        for _ in range(3):
            assert len(os.listdir(kv / directory)) == (MANY if directory == "many" else MANY // 10)
        times[directory] = time.monotonic() - begun
    assert times["many"] <= 12 * times["few"] + 0.5
    for number in range(0, MANY, 997):
        assert load(kv / "many" / names[number]) == b"%d" % number
    assert roomy.status()["namespaces"]["kv"]["objects"] == MANY + MANY // 10
    run("rm", "-rf", kv / "many", kv / "few")
    assert os.listdir(kv) == []
    assert roomy.status()["objects"] == 0
    assert roomy.status()["used_bytes"] == 0


def test_listing_while_entries_come_and_go(kv: Path) -> None:
    """A directory read slowly, with removals and additions between: what stays all the time is listed exactly once."""
    directory = kv / "d"
    make_many(directory, 1000)
    seen: list[str] = []
    with os.scandir(directory) as entries:
        for index, entry in enumerate(entries):
            seen.append(entry.name)
            if index < 200:
                os.unlink(directory / f"{500 + index:05}.data")
                (directory / f"added{index}").write_bytes(b"")
    staying = {f"{number:05}.data" for number in range(1000) if not 500 <= number < 700}
    assert len(seen) == len(set(seen))
    assert staying <= set(seen)
    assert set(os.listdir(directory)) == staying | {f"added{index}" for index in range(200)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tree on an ordinary filesystem, with odd modes, times, links, xattrs, empty and large files."""
    top = tmp_path / "source"
    (top / "a" / "b c").mkdir(parents=True)
    (top / "empty directory").mkdir(mode=0o700)
    for name, size in (("a/large", 5_000_001), ("a/b c/small", 77), ("empty", 0), ("a/.hidden", 4096), ("ümlaut", 1)):
        (top / name).write_bytes(pattern(name, size))
    os.link(top / "a" / "large", top / "hard link")
    os.symlink("a/large", top / "symlink")
    os.symlink("../nowhere", top / "a" / "dangling")
    os.chmod(top / "a" / "b c" / "small", 0o640)
    os.chmod(top / "empty", 0o4755)
    os.chown(top / "a" / ".hidden", 1000, 1001)
    os.setxattr(top / "ümlaut", "user.note", b"kept")
    for path in (top / "a" / "large", top / "a" / "b c", top / "a", top / "empty directory"):
        os.utime(path, ns=(1_500_000_000_123_456_789, 1_500_000_000_123_456_789))
    return top


def described(top: Path) -> dict[str, object]:
    """Everything that the tools claim to keep."""
    tree: dict[str, object] = {}
    for parent, directories, files in os.walk(top):
        for name in [*directories, *files]:
            path = os.path.join(parent, name)
            seen = os.lstat(path)
            link = os.readlink(path) if os.path.islink(path) else None
            tree[os.path.relpath(path, top)] = (
                oct(seen.st_mode),
                (seen.st_uid, seen.st_gid),
                None if link else seen.st_mtime_ns,
                link,
                digest(load(path)) if os.path.isfile(path) and not link else None,
            )
    return tree


@pytest.mark.parametrize("tool", ["cp -a", "rsync -a", "rsync -aHX", "tar", "tar pipe", "mv"])
def test_a_tree_goes_in_and_out(kv: Path, source: Path, tmp_path: Path, tool: str) -> None:
    """Copied into the namespace, copied within it, and back: the same tree each time."""
    expected = described(source)
    inside, again, back = kv / "inside", kv / "again", tmp_path / "back"
    for origin, target in ((source, inside), (inside, again), (again, back)):
        if tool == "cp -a":
            run("cp", "-a", origin, target)
        elif tool.startswith("rsync"):
            # With -X it would also carry what hcfs tells, and remove it where the source has none.
            words = [*tool.split(), "--filter=-x user.hcfs.*"]
            run(*words, f"{origin}/", f"{target}/")
            assert run(*words, "--itemize-changes", f"{origin}/", f"{target}/") == ""
        elif tool == "tar":
            archive = (kv if target == again else tmp_path) / "archive.tar"
            run("tar", "cf", archive, "--xattrs", "--xattrs-exclude=user.hcfs.*", "-C", origin, ".")
            target.mkdir()
            run("tar", "xf", archive, "--xattrs", "--same-owner", "-p", "-C", target)
            archive.unlink()
        elif tool == "tar pipe":
            target.mkdir()
            script = 'cd "$1" && tar cf - --format=posix . | (cd "$2" && tar xpf -)'
            run("sh", "-ec", script, "sh", origin, target)
        else:
            run("mv", origin, target)
            assert not origin.exists()
        assert described(target) == expected
        if tool in ("cp -a", "rsync -aHX", "tar"):
            assert os.getxattr(target / "ümlaut", "user.note") == b"kept"
            assert os.stat(target / "hard link").st_ino == os.stat(target / "a" / "large").st_ino
    if tool != "mv":
        run("diff", "-r", "--no-dereference", source, inside)
        run("rm", "-r", inside)
        assert os.listdir(kv) == ["again"]


@pytest.mark.parametrize("tool", ["mv", "cp -a"])
def test_between_namespaces_without_a_word(shared_mount: Mount, kv: Path, tool: str) -> None:
    """What hcfs says of a file stays behind; what users said goes along."""
    other = shared_mount.ns(f"{kv.name}-other")
    for name in ("kept", "tenant@a"):
        (kv / name).write_bytes(b"content")
        os.setxattr(kv / name, "user.note", b"kept")
        done = subprocess.run([*tool.split(), kv / name, other / name], check=False, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert load(other / name) == b"content"
        assert os.getxattr(other / name, "user.note") == b"kept"
        assert os.getxattr(other / name, "user.hcfs.namespace") == other.name.encode()


def test_other_tools(kv: Path) -> None:
    """truncate, dd with O_DIRECT, install, sed -i, sort -o, split, gzip: they find what they need."""
    run("truncate", "-s", "1M", "t", cwd=kv)
    assert (kv / "t").stat().st_size == 1 << 20
    run("dd", "if=/dev/zero", "of=zeros", "bs=64k", "count=16", "oflag=direct", "status=none", cwd=kv)
    run("dd", "if=zeros", "of=copy", "bs=64k", "iflag=direct", "oflag=direct", "status=none", cwd=kv)
    run("cmp", "zeros", "t", cwd=kv)
    run("cmp", "zeros", "copy", cwd=kv)
    run("install", "-m", "750", "-D", "t", "deep/er/installed", cwd=kv)
    assert (kv / "deep" / "er" / "installed").stat().st_mode & 0o777 == 0o750
    script = "seq 1 1000 > n; sort -rn -o n n; sed -i s/^1$/one/ n; split -l 100 n part-; cat part-* | cmp - n"
    run("sh", "-ec", script, cwd=kv)
    assert load(kv / "n").startswith(b"1000\n999\n")
    assert load(kv / "n").endswith(b"2\none\n")
    run("sh", "-ec", "cp n m; gzip m; gunzip -c m.gz | cmp - n", cwd=kv)
    run("rm", "-rf", "deep", cwd=kv)
    assert not (kv / "deep").exists()


def test_find_delete_and_overwriting_copies(kv: Path) -> None:
    """cp over existing files, find -delete, mv of many: nothing is left behind or mixed up."""
    make_many(kv / "a", 300)
    run("cp", "-a", kv / "a", kv / "b")
    for number in range(0, 300, 3):
        (kv / "a" / f"{number:05}.data").write_bytes(b"changed %d" % number)
    run("cp", "-r", f"{kv}/a/.", kv / "b")
    for number in range(300):
        assert load(kv / "b" / f"{number:05}.data") == (b"%d" % number if number % 3 else b"changed %d" % number)
    run("sh", "-ec", "mkdir c; mv b/*0.data c; find b -name '*5.data' -delete", cwd=kv)
    assert len(os.listdir(kv / "c")) == 30
    assert len(os.listdir(kv / "b")) == 240
    run("rm", "-rf", kv / "a", kv / "b", kv / "c")
    assert os.listdir(kv) == []
