"""Several LMCache servers on one namespace, and one that is killed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.harness.lmcache.driver import MIB, Client, Worker, make_chunks
from lab.harness.mounts import Mount


@pytest.mark.parametrize("direct", [False, True], ids=["buffered", "direct"])
@pytest.mark.parametrize("tmp", ["", "tmp"])
def test_two_processes_store_the_same_keys_at_once(
    worker: Worker, make_worker: Callable[[], Worker], kv: Path, direct: bool, tmp: str
) -> None:
    """Both write to the same temporary name, with different bytes: no object is a mixture, and no store fails.

    With `relative_tmp_dir` the temporary names are no staging names: what is closed there is everybody's, and of two
    who rename it one comes too late, as on any file system.
    """
    other = make_worker()
    with (
        Client(worker, "client", kv, direct=direct, tmp=tmp) as one,
        Client(other, "client", kv, direct=direct, tmp=tmp) as two,
    ):
        for turn in range(6):
            chunks = make_chunks(8, 2 * MIB, first=8 * turn, version=1)
            rivals = make_chunks(8, 2 * MIB, first=8 * turn, version=2)
            one.send_store(chunks)
            two.send_store(rivals)
            for process in (worker, other):
                answer = process.receive()
                assert answer["ok"] or (tmp and "rename failed" in answer["error"]), answer
            winners = one.load(chunks, versions=(1, 2))
            assert set(winners) <= ({1, 2} if not tmp else {1, 2, None})
            assert two.load(chunks, versions=(1, 2)) == winners
            assert one.exists(chunks) == two.exists(chunks) == [winner is not None for winner in winners]
            one.store(chunks)
            two.store(rivals)
            assert None not in one.load(chunks, versions=(1, 2))
    assert sum(name.endswith(".data") for name in os.listdir(kv)) == 48
    assert sum(len(names) for _, _, names in os.walk(kv)) == 48


def test_what_one_process_stores_another_finds_only_when_it_is_whole(
    worker: Worker, make_worker: Callable[[], Worker], kv: Path
) -> None:
    """While 14 MiB objects are being stored, the other process asks all the time: a miss, or the whole object."""
    other = make_worker()
    chunks = make_chunks(6, 14 * MIB)
    with Client(worker, "client", kv, num_workers=2) as writer, Client(other, "client", kv) as reader:
        writer.send_store(chunks)
        asked = 0
        while asked < 3 or reader.exists(chunks).count(True) < len(chunks):
            found = reader.exists(chunks)
            loaded = reader.load(chunks)
            assert set(loaded) <= {0, None}
            assert all(version == 0 for version, there in zip(loaded, found, strict=True) if there)
            asked += 1
        assert worker.receive()["ok"]
        assert reader.load(chunks) == [0] * len(chunks)


def test_a_killed_server_leaves_whole_objects_and_nothing_else(
    worker: Worker, make_worker: Callable[[], Worker], make_mount: Callable[..., Mount]
) -> None:
    # One that was killed between its close and its rename left a whole version, which waits for the rename so long:
    mount = make_mount(size="768M", options="staging_ttl=1")
    kv = mount.ns("kv")
    victim = make_worker()
    chunks = make_chunks(24, 14 * MIB)
    Client(victim, "client", kv, direct=True, num_workers=4).send_store(chunks)
    deadline = time.monotonic() + 60
    while len(os.listdir(kv)) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    victim.kill()
    while mount.status()["staged_objects"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with Client(worker, "client", kv, direct=True) as client:
        there = client.exists(chunks)
        assert client.load(chunks) == [0 if found else None for found in there]
        assert sorted(os.listdir(kv)) == sorted(c.name for c, found in zip(chunks, there, strict=True) if found)
        client.store(chunks)
        assert client.load(chunks) == [0] * 24
    status = mount.status()
    assert status["namespaces"]["kv"]["used_bytes"] == 24 * 14 * MIB
    assert status["staged_bytes"] == 0
