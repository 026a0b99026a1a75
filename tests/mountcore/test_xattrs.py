"""Extended attributes and namespace options."""

from __future__ import annotations

import os

from mountcore.kernel import Process, Rig, errno_of

from hcfs.filesystem.calls import finish
from hcfs.store import ROOT_ID


def values(rig: Rig, ino: int) -> dict[bytes, bytes]:
    return {name: finish(rig.fs.getxattr(ino, name)) for name in rig.fs.listxattr(ino)}


def test_what_hcfs_says_of_a_file(rig: Rig, me: Process) -> None:
    ino = me.put(b"f", b"123456789")
    found = values(rig, ino)
    assert found[b"user.hcfs.crc32c"] == b"e3069283"
    assert found[b"user.hcfs.state"] == b"local-only"
    assert found[b"user.hcfs.namespace"] == b"kv"
    assert found[b"user.hcfs.origin"] == b"none"
    assert found[b"user.hcfs.extents"].startswith(b"0+1@")
    assert set(found) >= {b"user.hcfs.generation", b"user.hcfs.last_access"}
    for name in found:
        assert errno_of(rig.fs.setxattr, ino, name, b"x", me.caller) == "ENOTSUP"
        assert errno_of(rig.fs.removexattr, ino, name, me.caller) == "ENOTSUP"


def test_of_a_version(rig: Rig, me: Process) -> None:
    handle = me.open(b"f", os.O_WRONLY | os.O_CREAT)
    for name in (b"state", b"origin", b"quota"):
        ino = me.lookup(b"f").ino
        assert errno_of(rig.fs.setxattr, ino, b"user.hcfs." + name, b"x", me.caller) == "ENOTSUP"
    found = values(rig, me.lookup(b"f").ino)
    assert found == {b"user.hcfs.state": b"staged", b"user.hcfs.namespace": b"kv", b"user.hcfs.origin": b"none"}
    me.close(handle)


def test_the_users_own(rig: Rig, me: Process) -> None:
    for ino in (me.put(b"f", b"1"), rig.kv, ROOT_ID):
        rig.fs.setxattr(ino, b"user.a", b"\0\xff", me.caller)
        assert rig.fs.getxattr(ino, b"user.a") == b"\0\xff"
        assert b"user.a" in rig.fs.listxattr(ino)
        rig.fs.removexattr(ino, b"user.a", me.caller)
        assert errno_of(rig.fs.getxattr, ino, b"user.a") == "ENODATA"
        assert errno_of(rig.fs.removexattr, ino, b"user.a", me.caller) == "ENODATA"


def test_other_prefixes_do_not_exist(rig: Rig, me: Process) -> None:
    ino = me.put(b"f", b"1")
    for name in (b"security.capability", b"system.posix_acl_access", b"trusted.x", b"hcfs.quota"):
        assert errno_of(rig.fs.getxattr, ino, name) == "ENODATA"
        assert errno_of(rig.fs.setxattr, ino, name, b"x", me.caller) == "ENOTSUP"


def test_options_of_a_namespace(rig: Rig, me: Process) -> None:
    found = values(rig, rig.kv)
    assert found[b"user.hcfs.verify"] == b"read"
    assert found[b"user.hcfs.staging_patterns"] == b"*.tmp"
    assert found[b"user.hcfs.quota"] == b"none"
    rig.fs.setxattr(rig.kv, b"user.hcfs.verify", b"open", me.caller)
    assert rig.fs.getxattr(rig.kv, b"user.hcfs.verify") == b"open"
    assert errno_of(rig.fs.setxattr, rig.kv, b"user.hcfs.verify", b"never", me.caller) == "EINVAL"
    assert errno_of(rig.fs.setxattr, rig.kv, b"user.hcfs.quota", b"much", me.caller) == "EINVAL"
    assert errno_of(rig.fs.setxattr, rig.kv, b"user.hcfs.other", b"1", me.caller) == "EPERM"
    rig.fs.removexattr(rig.kv, b"user.hcfs.verify", me.caller)
    assert rig.fs.getxattr(rig.kv, b"user.hcfs.verify") == b"read"
    assert not any(name.startswith(b"hcfs.") for name in rig.fs.listxattr(rig.kv))


def test_who_may_administer(rig: Rig, me: Process) -> None:
    stranger = rig.proc(uid=1000)
    assert errno_of(rig.fs.setxattr, rig.kv, b"user.hcfs.verify", b"open", stranger.caller) == "EPERM"
    rig.store.set_attributes(ROOT_ID, uid=1000)
    rig.fs.setxattr(rig.kv, b"user.hcfs.verify", b"open", stranger.caller)


def test_directories_inside_have_no_options(rig: Rig, me: Process) -> None:
    inner = me.fs.mkdir(rig.kv, b"d", 0o755, me.caller).ino
    assert rig.fs.listxattr(inner) == []
    assert errno_of(rig.fs.setxattr, inner, b"user.hcfs.verify", b"open", me.caller) == "ENOTSUP"
