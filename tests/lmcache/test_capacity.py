"""A device much smaller than what is stored on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from lab.harness.lmcache.driver import MIB, Client, Worker, make_chunks
from lab.harness.mounts import Mount

LENGTH = 2 * MIB


def settle(mount: Mount) -> None:
    """Wait until the background eviction has nothing to do (below the high watermark, 0.95 by default)."""
    deadline = time.monotonic() + 30
    while (status := mount.status())["used_bytes"] > 0.95 * status["capacity_bytes"]:
        assert time.monotonic() < deadline, status
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("kind", "direct", "options"),
    [("client", True, "lookup_grace=0"), ("client", False, ""), ("adapter", True, "")],
    ids=["client-direct-without-grace", "client-buffered-as-shipped", "adapter-direct-as-shipped"],
)
def test_three_times_the_capacity_is_stored_without_a_failure(
    worker: Worker, make_mount: Callable[..., Mount], kind: str, direct: bool, options: str
) -> None:
    mount = make_mount(size="128M", options=options)
    kv = mount.ns("kv")
    capacity = mount.status()["capacity_bytes"]
    chunks = make_chunks(3 * capacity // LENGTH + 1, LENGTH)
    with Client(worker, kind, kv, direct=direct) as client:
        for start in range(0, len(chunks), 8):
            client.store(chunks[start : start + 8])
            status = mount.status()
            assert status["used_bytes"] + status["staged_bytes"] <= capacity
        settle(mount)
        # Least recently used goes first: what half the device holds is there, the last ones stored.
        recent = chunks[-(capacity // 2 // LENGTH) :]
        assert client.exists(recent) == [True] * len(recent)
        assert client.load(recent) == [0] * len(recent)
        assert client.load(chunks[:8]) == [None] * 8
        loaded = client.load(chunks)
        assert set(loaded) == {0, None}
        assert sorted(os.listdir(kv)) == sorted(c.name for c, got in zip(chunks, loaded, strict=True) if got == 0)
    status = mount.status()
    there = loaded.count(0)
    assert status["namespaces"]["kv"]["objects"] == there
    assert status["counters"]["evictions"] == len(chunks) - there
    assert status["counters"]["evicted_bytes"] == (len(chunks) - there) * LENGTH
    mount.umount()
    mount.mount()
    with Client(worker, kind, kv, direct=direct) as client:
        assert client.load(chunks) == loaded


def test_what_is_used_stays_and_what_is_not_goes(worker: Worker, make_mount: Callable[..., Mount]) -> None:
    mount = make_mount(size="128M", options="lookup_grace=0")
    capacity = mount.status()["capacity_bytes"]
    favourites = make_chunks(8, LENGTH)
    passing = make_chunks(3 * capacity // LENGTH, LENGTH, first=100)
    with Client(worker, "client", mount.ns("kv"), direct=True) as client:
        client.store(favourites)
        for start in range(0, len(passing), 8):
            client.store(passing[start : start + 8])
            assert client.load(favourites) == [0] * 8
        assert client.load(passing[:8]) == [None] * 8


def test_what_a_lookup_found_can_be_loaded_for_the_grace(worker: Worker, make_mount: Callable[..., Mount]) -> None:
    """LMCache asks for all keys of a prompt first and loads them when their turn comes."""
    mount = make_mount(size="128M", options="lookup_grace=600")
    capacity = mount.status()["capacity_bytes"]
    wanted = make_chunks(8, LENGTH)
    passing = make_chunks(3 * capacity // LENGTH, LENGTH, first=100)
    with Client(worker, "client", mount.ns("kv"), direct=True) as client:
        client.store(wanted)
        assert client.exists(wanted) == [True] * 8
        for start in range(0, len(passing), 8):
            client.store(passing[start : start + 8])
        assert client.load(wanted) == [0] * 8
