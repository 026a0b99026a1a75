"""Fill the device to the last block without evicting anything, read it all, drain it, again and again: no capacity is
lost.

Sizes change from cycle to cycle, the draining too: in order, in random order, by eviction for a quota, or over a kill
of the daemon.
"""

from __future__ import annotations

import argparse
import os
import random
from contextlib import ExitStack
from pathlib import Path

from lab.harness.cli import hcfs
from lab.harness.images import create_image
from lab.harness.mounts import Mount
from lab.space.looks import Sampler, check_image, must, settle, until

SIZE = "128M"
BLOCK = 4096
DRAINS = ("in order", "at random", "by a quota of 0", "over a kill")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of its own."""
    parser.add_argument("--cycles", type=int, default=20, help="how often (default: 20)")


def content(length: int, number: int) -> bytes:
    """That of no other object."""
    return random.Random(number).randbytes(min(length, 1 << 16)).ljust(length, b"%d" % (number % 10))


def fill(mount: Mount, kv: Path, chance: random.Random) -> dict[str, int]:
    """Store until no block is free; lengths of the files."""
    files: dict[str, int] = {}
    while free := settle(mount)["free_bytes"]:
        largest = chance.choice([64 << 10, 1 << 20, 8 << 20])
        for _ in range(64):
            length = min(int(2 ** chance.uniform(0, largest.bit_length())), free)
            if length == 0:
                break
            name = f"{len(files)}"
            with open(kv / f"{name}.tmp", "wb") as file:
                file.write(content(length, len(files)))
            os.rename(kv / f"{name}.tmp", kv / name)
            files[name] = length
            free -= -(-length // BLOCK) * BLOCK
    return files


def drain(mount: Mount, kv: Path, how: str, files: dict[str, int], chance: random.Random) -> None:
    """Empty the namespace."""
    names = list(files)
    if how == "by a quota of 0":
        os.setxattr(kv, "user.hcfs.quota", b"0")
        until(lambda: not os.listdir(kv), "a quota of 0 empties the namespace")
        os.removexattr(kv, "user.hcfs.quota")
        return
    if how != "in order":
        chance.shuffle(names)
    for at, name in enumerate(names):
        if how == "over a kill" and at == len(names) // 2:
            mount.kill()
            mount.mount()
            # What was removed last may be there again.
            names += [back for back in os.listdir(kv) if back not in names[at:]]
        os.unlink(kv / name)
    for name in names[len(files) :]:
        must(not (kv / name).exists(), "a removed file is back", name)


def run(options: argparse.Namespace, directory: Path) -> None:
    """The campaign. Raises Finding."""
    image = create_image(directory / "space.img", options.size)
    hcfs("mkfs", image, "--max-objects", "20000")
    marks = "high_watermark=1,low_watermark=0.99"
    mount = Mount(image, directory / "mnt", options=f"lookup_grace=0,commit_interval=0.2,{marks}")
    chance = random.Random(f"cycles {options.seed}")
    with ExitStack() as stack:
        stack.callback(mount.close)
        mount.mount()
        kv = mount.ns()
        empty = settle(mount)
        for cycle in range(options.cycles):
            sampler = Sampler(mount)
            files = fill(mount, kv, chance)
            full = settle(mount)
            sampler.finish()
            must(full["used_bytes"] == full["capacity_bytes"] == empty["capacity_bytes"], "it isn't full", full)
            must(full["counters"]["evictions"] == 0 or cycle > 0, "something was evicted", full["counters"])
            must(len(os.listdir(kv)) == len(files), "files are missing", len(os.listdir(kv)), len(files))
            for number, (name, length) in enumerate(files.items()):
                must((kv / name).read_bytes() == content(length, number), "wrong bytes", name)
            how = DRAINS[cycle % len(DRAINS)]
            drain(mount, kv, how, files, chance)
            until(lambda: settle(mount)["free_bytes"] == empty["capacity_bytes"], "a drained device is all free")
            drained = settle(mount)
            must(drained["largest_free_bytes"] == drained["capacity_bytes"], "free space is in pieces", drained)
            print(
                f"cycle {cycle + 1}: full with {len(files)} files, {full['fragmented_objects']} of them in several"
                f" extents; drained {how}",
                flush=True,
            )
        check_image(mount, settle(mount))
