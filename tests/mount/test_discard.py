"""`discard=batch`: freed blocks become holes in what lies below the device, and nothing else does."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.harness.actors import Actor, eventually, load_direct, pattern, put
from lab.harness.cli import hcfs
from lab.harness.images import create_image
from lab.harness.mounts import Mount

MIB = 1 << 20


def backing(loop: Path) -> Path:
    shown = subprocess.run(["losetup", "-n", "-O", "BACK-FILE", loop], check=True, capture_output=True, text=True)
    return Path(shown.stdout.strip())


def occupied(path: Path) -> int:
    """Bytes of a file that aren't holes."""
    return os.stat(path).st_blocks * 512


def settled(mount: Mount) -> int:
    """Bytes discarded so far, once there is nothing more to discard."""

    def done() -> int:
        status = mount.status()
        discard = status["discard"]
        return 0 if discard["pending_bytes"] or status["pending_bytes"] else discard["discarded_bytes"]

    return int(eventually(done, "discarded"))


def test_holes_appear(make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(loop=True, size="128M", options="discard=batch,commit_interval=0.2,lookup_grace=0")
    file, kv = backing(mount.source), mount.ns()
    before = settled(mount)
    assert before >= mount.status()["free_bytes"]
    contents = {f"{number}": pattern(number, 4 * MIB) for number in range(8)}
    for name, content in contents.items():
        put(kv / name, content)
    full = occupied(file)
    with Actor() as reader:
        held = reader.open(kv / "0", os.O_RDONLY | os.O_DIRECT)
        for name in ("0", "1", "2", "3"):
            os.unlink(kv / name)
        eventually(lambda: occupied(file) <= full - 12 * MIB, "three of four")
        assert occupied(file) > full - 16 * MIB
        assert reader.pread_direct(held, 4 * MIB, 0) == contents["0"]
    assert settled(mount) >= before + 16 * MIB
    assert occupied(file) <= full - 16 * MIB
    for name in ("4", "5", "6", "7"):
        assert load_direct(kv / name) == contents[name]
    raw = file.read_bytes()
    assert not any(contents[name][: 1 << 12] in raw for name in ("0", "1", "2", "3"))
    hcfs("evict", mount.dir, "kv", "--all")
    eventually(lambda: occupied(file) <= full - 32 * MIB, "evicted")
    mount.umount()
    hcfs("fsck", mount.source, "--data")


def test_what_a_former_mount_left(make_mount: Callable[..., Mount]) -> None:
    """At the beginning nobody knows what was discarded, so all that is free is; at the end, what is left."""
    mount = make_mount(loop=True, size="64M", options="lookup_grace=0")
    file, kv = backing(mount.source), mount.ns()
    assert mount.status()["discard"] == {"mode": "off"}
    put(kv / "a", pattern("a", 8 * MIB))
    put(kv / "b", pattern("b", 8 * MIB))
    os.unlink(kv / "a")
    mount.umount()
    full = occupied(file)
    mount.mount("discard=batch")
    assert json.loads((mount.dir / ".hcfs" / "config.json").read_bytes())["discard"] == "batch"
    settled(mount)
    assert occupied(file) <= full - 8 * MIB
    assert load_direct(kv / "b") == pattern("b", 8 * MIB)
    os.unlink(kv / "b")
    mount.umount()
    assert occupied(file) <= full - 16 * MIB


def test_an_object_that_is_stored_where_others_go(make_mount: Callable[..., Mount]) -> None:
    """A nearly full store whose blocks are freed and used again all the time: every read is right."""
    mount = make_mount(loop=True, size="64M", options="discard=batch,commit_interval=0.05,lookup_grace=0")
    kv, chance = mount.ns(), random.Random(7)
    for number in range(50):
        name = f"{chance.randrange(12)}"
        put(kv / name, pattern(name, chance.randrange(1, 3 * MIB)))
        other = chance.choice(os.listdir(kv))
        data = load_direct(kv / other)
        assert data == pattern(other, 3 * MIB)[: len(data)] or data == pattern(other, len(data)), number
        if chance.random() < 0.4:
            os.unlink(kv / other)
    assert settled(mount) > 40 * MIB
    mount.umount()
    hcfs("fsck", mount.source, "--data")


@pytest.fixture
def ramfs(tmp_path: Path) -> Iterator[Path]:
    """A filesystem that can't punch holes."""
    directory = tmp_path / "ramfs"
    directory.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "ramfs", directory], check=True)
    yield directory
    subprocess.run(["umount", "-l", directory], check=True)


def test_where_it_cannot_be_kept(make_image: Callable[..., Path], tmp_path: Path, ramfs: Path) -> None:
    """Refused, in one sentence that names the option: never accepted and ignored."""
    image, other = make_image("64M"), create_image(ramfs / "image", "64M")
    (tmp_path / "mnt").mkdir()
    for path in (image, other):
        hcfs("mkfs", path)
    for source, words, code, reason in (
        (image, "discard=batch,ro", 2, "ro"),
        (image, "discard", 2, "discard can't be set: there is no such way to discard; give off or batch"),
        (image, "discard=always", 2, "discard=always can't be set: there is no such way to discard; give off or batch"),
        (other, "discard=batch", 1, "no discards"),
    ):
        result = hcfs("mount", source, tmp_path / "mnt", "-o", words, "--log", tmp_path / "log", check=False)
        assert (result.returncode, result.stdout) == (code, "")
        assert reason in result.stderr
        assert len(result.stderr.splitlines()) == 1
