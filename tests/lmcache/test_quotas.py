"""LMCache's adapter in a namespace with a quota: batches that fail half way, and tenants beside each other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.harness.lmcache.driver import MIB, Client, Worker, make_chunks
from lab.harness.mounts import Mount


def set_option(kv: Path, option: str, value: str) -> None:
    os.setxattr(kv, f"user.hcfs.{option}", value.encode())


@pytest.mark.parametrize("kind", ["client", "adapter"])
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "buffered"])
def test_a_batch_that_fails_half_way(worker: Worker, shared_mount: Mount, kv: Path, kind: str, direct: bool) -> None:
    """A quota is hit in the middle of 32 keys: each key is absent or whole, nothing is staged, and what failed can be
    stored later.
    """
    set_option(kv, "salt_quota", str(8 * MIB))
    batch = make_chunks(32, MIB // 4, salt="a")
    batch[16::4] = make_chunks(4, 10 * MIB, salt="b")
    with Client(worker, kind, kv, direct=direct) as client:  # type: ignore[arg-type]
        stored, _ = client.try_store(batch)
        assert not stored
        present = client.exists(batch)
        assert present[16::4] == [False] * 4
        survivors = [chunk for chunk, there in zip(batch, present, strict=True) if there]
        assert len(survivors) >= 10
        assert client.load(batch) == [0 if there else None for there in present]
        assert sorted(os.listdir(kv)) == sorted(chunk.name for chunk in survivors)
        usage = shared_mount.status()["namespaces"][kv.name]
        assert (usage["used_bytes"], usage["staged_bytes"]) == (len(survivors) * MIB // 4, 0)
        set_option(kv, "salt_quota", "none")
        client.store(batch)
        assert client.load(batch) == [0] * 32


def test_the_tenant_that_stores_most_keeps_to_its_share(worker: Worker, shared_mount: Mount, kv: Path) -> None:
    set_option(kv, "salt_quota", str(8 * MIB))
    quiet = make_chunks(4, 2 * MIB, salt="quiet")
    loud = make_chunks(20, 2 * MIB, salt="loud")
    with Client(worker, "client", kv, direct=True, num_workers=1) as client:
        client.store(quiet)
        for start in range(0, 20, 4):
            client.store(loud[start : start + 4])
            salts = shared_mount.status()["namespaces"][kv.name]["salts"]
            assert salts == {"quiet": 8 * MIB, "loud": 8 * MIB}
        assert client.load(quiet) == [0] * 4
        assert client.load(loud[-4:]) == [0] * 4
        assert client.exists(loud[:16]) == [False] * 16
