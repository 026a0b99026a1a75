"""Closed versions under staging names wait for staging_ttl; an open one is never reclaimed, however old."""

from __future__ import annotations

import os
from collections.abc import Callable

from lab.harness.actors import Actor, errno_of, eventually, load, pattern, put
from lab.harness.cli import hcfs
from lab.harness.mounts import Mount

CONTENT = pattern("reclaimed", 1 << 20)


def test_reclaimed_after_its_time(make_mount: Callable[..., Mount]) -> None:
    """Gone for its living writer too, the space with it; a rename then says ENOENT."""
    mount = make_mount(options="staging_ttl=1")
    kv = mount.ns()
    free = mount.status()["free_bytes"]
    with Actor() as writer:
        writer.store(kv / "k.tmp", CONTENT)
        assert mount.status()["staged_objects"] == 1
        eventually(lambda: mount.status()["staged_objects"] == 0, "reclaimed")
        assert errno_of(writer.stat, kv / "k.tmp") == errno_of(os.stat, kv / "k.tmp") == "ENOENT"
        assert errno_of(writer.rename, kv / "k.tmp", kv / "k") == "ENOENT"
        eventually(lambda: mount.status()["free_bytes"] == free, "its space is free")
        writer.store(kv / "k.tmp", CONTENT)
        writer.rename(kv / "k.tmp", kv / "k")
    assert load(kv / "k") == CONTENT


def test_an_open_version_is_never_reclaimed(make_mount: Callable[..., Mount]) -> None:
    """One writer is stopped, one merely slow, for longer than others' closed versions live: both commit in the end."""
    mount = make_mount(options="staging_ttl=1")
    kv = mount.ns()
    with Actor() as stopped, Actor() as slow, Actor() as other:
        handles = {}
        for name, writer in (("stopped", stopped), ("slow", slow)):
            handles[name] = writer.open(kv / f"{name}.tmp", os.O_WRONLY | os.O_CREAT)
            writer.write_all(handles[name], CONTENT)
            writer.close(writer.dup(handles[name]))
        stopped.stop()
        for _ in range(3):
            other.store(kv / "closed.tmp", b"x")
            eventually(lambda: errno_of(other.stat, kv / "closed.tmp") == "ENOENT", "the closed one is reclaimed")
            assert mount.status()["staged_objects"] == 2
        stopped.resume()
        for name, writer in (("stopped", stopped), ("slow", slow)):
            writer.write(handles[name], b"end")
            writer.close(handles[name])
            writer.rename(kv / f"{name}.tmp", kv / name)
            assert load(kv / name) == CONTENT + b"end"


def test_committed_objects_are_never_reclaimed(make_mount: Callable[..., Mount]) -> None:
    """Renamed to a staging name, they stay, whatever the age."""
    mount = make_mount(options="staging_ttl=1")
    kv = mount.ns()
    put(kv / "x", CONTENT)
    os.rename(kv / "x", kv / "x.tmp")
    with Actor() as other:
        other.store(kv / "closed.tmp", b"x")
        eventually(lambda: errno_of(other.stat, kv / "closed.tmp") == "ENOENT", "the closed one is reclaimed")
    assert load(kv / "x.tmp") == CONTENT
    mount.umount()
    mount.mount()
    assert load(kv / "x.tmp") == CONTENT


def test_patterns_of_a_namespace(make_mount: Callable[..., Mount]) -> None:
    """*.incomplete and SGLang's *.bin.tmp.* wait like *.tmp where the namespace says so, and nowhere else."""
    mount = make_mount()
    hcfs("ns", "create", mount.dir, "kv", "--staging-patterns", "*.tmp,*.incomplete,*.bin.tmp.*")
    kv, plain = mount.dir / "kv", mount.ns("plain")
    names = ["a.tmp", "b.incomplete", "c.bin.tmp.12.34.56-78"]
    with Actor() as writer:
        for name in [*names, "d.other"]:
            writer.store(kv / name, CONTENT)
            writer.store(plain / name, CONTENT)
        eventually(lambda: os.listdir(kv) == ["d.other"], "only the ordinary name is published")
        eventually(lambda: set(os.listdir(plain)) == {*names[1:], "d.other"}, "only *.tmp waits by default")
        for name in names:
            writer.rename(kv / name, kv / name.split(".")[0])
    assert set(os.listdir(kv)) == {"a", "b", "c", "d.other"}
    assert load(kv / "c") == CONTENT
    mount.umount()
    mount.mount()
    with Actor() as writer:
        writer.store(kv / "e.incomplete", CONTENT)
        assert "e.incomplete" not in os.listdir(kv)
        assert errno_of(writer.stat, kv / "e.incomplete") == "ok"
