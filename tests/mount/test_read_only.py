"""A mount with `ro`: everything is readable, every change is EROFS, and not a byte is written."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable

from mount.damage import flip

from lab.harness.actors import errno_of, load, load_direct, pattern, put, store
from lab.harness.mounts import Mount

CONTENT = pattern("read-only", 300_000)


def test_read_only(make_mount: Callable[..., Mount]) -> None:
    """The image's bytes are the same after a mount, all kinds of attempts and an unmount."""
    mount = make_mount(size="64M")
    kv = mount.ns()
    put(kv / "x", CONTENT)
    os.setxattr(kv / "x", "user.a", b"1")
    os.symlink("x", kv / "symlink")
    (kv / "d").mkdir()
    mount.umount()
    before = hashlib.blake2b(mount.source.read_bytes()).digest()
    mount.mount("ro")
    assert load(kv / "x") == load_direct(kv / "x") == load(kv / "symlink") == CONTENT
    assert os.getxattr(kv / "x", "user.a") == b"1"
    assert sorted(os.listdir(kv)) == ["d", "symlink", "x"]
    assert mount.status()["state"] == "read-only"
    assert json.loads((mount.dir / ".hcfs" / "config.json").read_bytes())["ro"] is True
    attempts: dict[str, Callable[[], object]] = {
        "create": lambda: store(kv / "new", b""),
        "tmp": lambda: store(kv / "new.tmp", b""),
        "lock": lambda: store(kv / "new.lock", b""),
        "open": lambda: os.open(kv / "x", os.O_RDWR),
        "truncate": lambda: os.truncate(kv / "x", 1),
        "unlink": lambda: os.unlink(kv / "x"),
        "rename": lambda: os.rename(kv / "x", kv / "y"),
        "link": lambda: os.link(kv / "x", kv / "y"),
        "mkdir": lambda: os.mkdir(kv / "e"),
        "namespace": lambda: os.mkdir(mount.dir / "other"),
        "rmdir": lambda: os.rmdir(kv / "d"),
        "symlink": lambda: os.symlink("x", kv / "y"),
        "mknod": lambda: os.mknod(kv / "y"),
        "chmod": lambda: os.chmod(kv / "x", 0o600),
        "chown": lambda: os.chown(kv / "x", 1, 1),
        "utime": lambda: os.utime(kv / "x"),
        "setxattr": lambda: os.setxattr(kv / "x", "user.b", b"1"),
        "removexattr": lambda: os.removexattr(kv / "x", "user.a"),
    }
    assert {name: errno_of(attempt) for name, attempt in attempts.items()} == dict.fromkeys(attempts, "EROFS")
    assert os.statvfs(kv).f_flag & os.ST_RDONLY
    mount.umount()
    assert hashlib.blake2b(mount.source.read_bytes()).digest() == before
    mount.mount("")
    assert load(kv / "x") == CONTENT
    put(kv / "y", CONTENT)


def test_a_damaged_object_on_a_read_only_mount(make_mount: Callable[..., Mount]) -> None:
    """EIO and a miss, although nothing can be noted on the device."""
    mount = make_mount(size="64M", allow_warnings=("quarantin", "checksum", "mismatch", "verif"))
    put(mount.ns() / "x", CONTENT)
    mount.umount()
    flip(mount.source, CONTENT, 5000)
    mount.mount("ro")
    assert errno_of(load, mount.dir / "kv" / "x") == "EIO"
    assert errno_of(os.stat, mount.dir / "kv" / "x") == "ENOENT"
    assert mount.status()["counters"]["checksum_errors"] == 1
