"""What leaves a full mount, and in which order, also after the daemon was killed."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from lab.harness.actors import errno_of, eventually, load, pattern, put
from lab.harness.mounts import Mount

KIB = 1 << 10
CHUNK = 128 * KIB
SHARD = 2 << 20
"""More than a 256th of the device: a large file."""


def present(names: list[str], directory: Path) -> set[str]:
    """Those that are there, by listing and by lookups, which agree once the kernel has been told of evictions."""
    found = set[str]()

    def agree() -> bool:
        nonlocal found
        # In this order lookups are answered from what the listing has told the kernel, and count as no use.
        listed = set(os.listdir(directory))
        found = {name for name in names if errno_of(os.stat, directory / name) == "ok"}
        return found == listed & set(names)

    eventually(agree, "the kernel has been told of what was evicted")
    return found


def test_a_scan_of_weights_leaves_the_working_set_of_the_same_namespace(make_mount: Callable[..., Mount]) -> None:
    """Files of twice the device, each stored and read once; the chunks aren't used meanwhile."""
    mount = make_mount(size="64M", options="lookup_grace=0")
    kv = mount.ns()
    capacity = mount.status()["capacity_bytes"]
    chunks = [f"chunk{number}" for number in range(int(0.4 * capacity) // CHUNK)]
    for name in chunks:
        put(kv / name, pattern(name, CHUNK))
    weights = [f"model-{number}.safetensors" for number in range(2 * capacity // SHARD)]
    content = pattern("weights", SHARD)
    for name in weights:
        put(kv / name, content)
        assert load(kv / name) == content
    eventually(lambda: mount.status()["free_bytes"] > 0.05 * capacity, "down to a watermark")
    assert present(chunks, kv) == set(chunks)
    assert weights[0] not in present(weights, kv)
    for name in random.Random(5).sample(chunks, 20):
        assert load(kv / name) == pattern(name, CHUNK)
    eventually(
        lambda: mount.status()["counters"]["evictions"] == len(weights) - len(present(weights, kv)),
        "the background has gone down to its mark",
    )


def test_the_order_of_use_outlives_a_kill_in_about_the_same_order(make_mount: Callable[..., Mount]) -> None:
    """What was used before the last commit of something is in its place after kill -9; the last uses may be lost."""
    mount = make_mount(size="64M", options="lookup_grace=0,commit_interval=0.05,high_watermark=100%,low_watermark=99%")
    kv = mount.ns()
    content = pattern("x", 4 * CHUNK)
    names = [f"chunk{number:03}" for number in range(int(0.8 * mount.status()["capacity_bytes"]) // len(content))]
    for name in names:
        put(kv / name, content)
    order = random.Random(3).sample(names, len(names))
    for name in order:
        with open(kv / name, "rb"):
            pass
    put(kv / "commits", b"the uses go along with it")
    with open(kv / "commits", "rb") as file:
        os.fsync(file.fileno())
    for name in order[:6]:
        with open(kv / name, "rb"):
            pass
    mount.kill()
    mount.mount()
    new = 0
    while len(left := present(names, kv)) > len(names) // 2:
        for _ in range(4):
            put(kv / f"new{new}", content)
            new += 1
    gone = set(names) - left
    oldest = set(order[: len(gone)])
    # The six that were used again after that commit may count as old or as new.
    assert len(gone & oldest) >= 0.9 * len(gone) - 6
    assert len(gone - oldest) <= 6
