"""pyfuse3's handlers over the core: nothing but FUSEError leaves them."""

from __future__ import annotations

import errno
import logging
import os
import stat
from types import SimpleNamespace
from typing import Any

import pyfuse3
import pytest
import trio
import trio.testing
from mountcore.kernel import Rig

from hcfs.frontends.operations import Operations


@pytest.fixture
def operations(rig: Rig) -> Operations:
    return Operations(rig.fs)


def context() -> Any:
    return SimpleNamespace(pid=os.getpid(), uid=0, gid=0, umask=0o22)


async def test_a_file_from_end_to_end(rig: Rig, operations: Operations) -> None:
    info, entry = await operations.create(rig.kv, b"f", stat.S_IFREG | 0o644, os.O_RDWR, context())
    assert await operations.write(info.fh, 0, b"content") == 7
    assert bytes(await operations.read(info.fh, 0, 100)) == b"content"
    await operations.flush(info.fh)
    await operations.release(info.fh)
    found = await operations.lookup(rig.kv, b"f", context())
    assert (found.st_ino, found.st_size, found.st_mode) == (entry.st_ino, 7, stat.S_IFREG | 0o644)
    assert found.st_blocks == 8
    absent = await operations.lookup(rig.kv, b"g", context())
    assert (absent.st_ino, absent.entry_timeout) == (0, 30.0)
    space = await operations.statfs(context())
    assert (space.f_bsize, space.f_frsize, space.f_namemax) == (4096, 4096, 1024)


async def test_refusals_become_errnos(rig: Rig, operations: Operations) -> None:
    with pytest.raises(pyfuse3.FUSEError) as refused:
        await operations.rmdir(rig.kv, b"absent", context())
    assert refused.value.errno == errno.ENOENT


@pytest.mark.parametrize("error", [ValueError("bad"), OSError(5, "surprise"), MemoryError(), RecursionError()])
async def test_a_bug_is_an_eio_and_logged_once(
    rig: Rig,
    operations: Operations,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(rig.store, "lookup", fail)
    with caplog.at_level(logging.INFO), pytest.raises(pyfuse3.FUSEError) as answered:
        await operations.lookup(rig.kv, b"name", context())
    assert answered.value.errno == errno.EIO
    (record,) = caplog.records
    assert (record.levelname, record.exc_info is not None) == ("ERROR", True)
    assert "lookup" in record.getMessage()
    assert "kv/name" in record.getMessage()


async def test_memory_operations_make_no_checkpoint(rig: Rig, operations: Operations) -> None:
    """A RELEASE and the LOOKUP behind it are served in order."""
    info, _ = await operations.create(rig.kv, b"f", stat.S_IFREG | 0o644, os.O_RDWR, context())
    await operations.flush(info.fh)
    with trio.testing.assert_no_checkpoints():
        await operations.release(info.fh)
        assert (await operations.lookup(rig.kv, b"f", context())).st_ino
        await operations.mkdir(rig.kv, b"d", 0o755, context())
        await operations.rename(rig.kv, b"f", rig.kv, b"g", 0, context())
        opened = await operations.open(
            (await operations.lookup(rig.kv, b"g", context())).st_ino, os.O_RDONLY, context()
        )
        await operations.flush(opened.fh)
        await operations.release(opened.fh)
        await operations.unlink(rig.kv, b"g", context())


async def test_a_full_table_of_objects_makes_room(operations: Operations, rig: Rig) -> None:
    """Nothing waits for eviction but what needs it, and nobody is refused while something can go."""
    limit = rig.store.superblock.max_objects
    for number in range(limit - rig.store.usage().objects):
        await operations.mknod(rig.kv, b"%d" % number, stat.S_IFREG | 0o644, 0, context())
    assert rig.store.usage().objects == limit
    made = await operations.mkdir(rig.kv, b"d", 0o755, context())
    assert stat.S_ISDIR(made.st_mode)
    assert rig.store.usage().objects <= limit
    assert rig.cache.statistics().evictions > 0
