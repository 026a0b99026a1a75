"""Damage on the medium under a real mount, met in every way in which clients read: an error and a miss, never bytes."""

from __future__ import annotations

import errno
import os
import random
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness.mounts import Mount
from mount.actors import Actor, errno_of, load_direct, pattern, put

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from torture_calls import read_fd

ROUNDS = int(os.environ.get("HCFS_DAMAGE_ROUNDS", "2"))
SEED = os.environ.get("HCFS_DAMAGE_SEED", "1")
SIZES = (1, 4096, 65_536, 65_537, 262_144, 400_001, 1_300_000)
OBJECTS = 21
BLOCK = 4096
WAYS = ("read", "pieces", "direct", "sendfile", "copy", "mmap", "one byte")


@dataclass
class Stored:
    """An object, where its bytes lie, and the position of a byte that was changed there."""

    name: str
    data: bytes
    blocks: list[int]
    damaged: int | None = None

    def offset(self, position: int) -> int:
        """Of a byte of the object on the medium."""
        return self.blocks[position // BLOCK] * BLOCK + position % BLOCK


def blocks_of(path: Path) -> list[int]:
    """The device's block of each of the object's blocks."""
    text = os.getxattr(path, "user.hcfs.extents").decode()
    extents = [tuple(map(int, one)) for one in re.findall(r"(\d+)\+(\d+)@(\d+)", text)]
    return [start + index for _, count, start in extents for index in range(count)]


def damage(image: Path, chance: random.Random, stored: list[Stored]) -> None:
    """One place of a third of the objects: a bit flips, a block holds zeros or another object's block."""
    with image.open("r+b") as medium:
        for one in chance.sample(stored, OBJECTS // 3):
            position = chance.randrange(len(one.data))
            offset = one.offset(position)
            medium.seek(offset)
            before = medium.read(1)
            kind = chance.choice(["flip", "flip", "zeros", "misdirected"])
            if kind == "flip":
                after = bytes([before[0] ^ 1 << chance.randrange(8)])
            else:
                offset -= position % BLOCK
                other = chance.choice([each for each in stored if each is not one])
                medium.seek(other.blocks[0] * BLOCK)
                after = bytes(BLOCK) if kind == "zeros" else medium.read(BLOCK)
                start = position - position % BLOCK
                own = one.data[start : start + BLOCK]
                # A change that hits no byte of the object is none.
                position = next((start + at for at, byte in enumerate(own) if after[at] != byte), -1)
                if position < 0:
                    continue
            medium.seek(offset)
            medium.write(after)
            one.damaged = position


def read(path: Path, way: str, position: int, chance: random.Random) -> bytes | str:
    """What a client gets: bytes, or the errno's name; SIGBUS as that."""
    if way == "mmap":
        with Actor() as actor:
            try:
                fd = actor.open(path, os.O_RDONLY)
                return bytes(actor.map_read(actor.map_file(fd, actor.fstat(fd).st_size)))
            except EOFError:
                return "SIGBUS"
            except OSError as error:
                return errno.errorcode[error.errno or 0]
    try:
        fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if way == "direct" else 0))
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    try:
        return os.pread(fd, 1, position) if way == "one byte" else read_fd(fd, chance, way)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    finally:
        os.close(fd)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_damage_is_an_error_and_then_a_miss(make_mount: Callable[..., Mount], number: int) -> None:
    chance = random.Random(f"damaged media {SEED} {number}")
    granule = chance.choice(["64K", "256K", "1M"])
    mount = make_mount(size="128M", mkfs=["--granule", granule], options="lookup_grace=0", allow_warnings=["quarantin"])
    kv = mount.ns()
    if chance.random() < 0.3:
        os.setxattr(kv, "user.hcfs.verify", b"open")
    stored = []
    for index in range(OBJECTS):
        name, data = f"o{index}", pattern(f"{number} {index}", SIZES[index % len(SIZES)])
        put(kv / name, data)
        stored.append(Stored(name, data, blocks_of(kv / name)))
    at_open = os.getxattr(kv, "user.hcfs.verify") == b"open"
    mount.umount()
    damage(mount.source, chance, stored)
    mount.mount()
    chance.shuffle(stored)
    for one in stored:
        way = chance.choice(WAYS)
        position = one.damaged if one.damaged is not None else chance.randrange(len(one.data))
        right = one.data[position : position + 1] if way == "one byte" else one.data
        found = read(kv / one.name, way, position, chance)
        shown = f"seed {SEED}, round {number}: {one.name} ({len(one.data)} bytes, granule {granule}) read by {way}"
        if one.damaged is None:
            assert found == right, f"{shown}, undamaged: {found!r:.80}"
            continue
        refused = ("ENOENT",) if at_open else ("SIGBUS",) if way == "mmap" else ("EIO",)
        assert found in refused, f"{shown}, damaged at {one.damaged}: {found!r:.80}"
        assert errno_of(os.stat, kv / one.name) == "ENOENT", shown
    bad = [one for one in stored if one.damaged is not None]
    status = mount.status()
    assert status["quarantined_objects"] == len(bad)
    assert status["state"] == "ok"
    for one in stored:
        if one.damaged is None:
            assert load_direct(kv / one.name) == one.data
        else:
            put(kv / one.name, one.data)
            assert load_direct(kv / one.name) == one.data
