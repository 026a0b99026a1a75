"""Structures and numbers of the FUSE protocol, from the kernel's include/uapi/linux/fuse.h, version 7.38.

Everything is in the machine's byte order, which is little-endian wherever hcfs runs. Only what the data plane itself
reads or writes is here: the rest passes through to libfuse as it is.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from errno import EINVAL

from hcfs.errors import HcfsError

MAJOR = 7
MINOR = 38
"""The version that the answer to INIT speaks; the kernel then uses the smaller of its own and this."""

OLDEST_MINOR = 36
"""Below, INIT has no flags2 (linux 5.17)."""


class Opcode(IntEnum):
    """What a request asks for."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    GETLK = 31
    SETLK = 32
    SETLKW = 33
    ACCESS = 34
    CREATE = 35
    INTERRUPT = 36
    BMAP = 37
    DESTROY = 38
    IOCTL = 39
    POLL = 40
    NOTIFY_REPLY = 41
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45
    LSEEK = 46
    COPY_FILE_RANGE = 47
    SETUPMAPPING = 48
    REMOVEMAPPING = 49
    SYNCFS = 50
    TMPFILE = 51
    STATX = 52


class InitFlag(IntFlag):
    """What INIT agrees on; bits from 32 on travel in flags2."""

    ASYNC_READ = 1 << 0
    ATOMIC_O_TRUNC = 1 << 3
    EXPORT_SUPPORT = 1 << 4
    BIG_WRITES = 1 << 5
    DO_READDIRPLUS = 1 << 13
    ASYNC_DIO = 1 << 15
    PARALLEL_DIROPS = 1 << 18
    MAX_PAGES = 1 << 22
    EXPLICIT_INVAL_DATA = 1 << 25
    HANDLE_KILLPRIV_V2 = 1 << 28
    INIT_EXT = 1 << 30
    DIRECT_IO_ALLOW_MMAP = 1 << 36


class OpenFlag(IntFlag):
    """What the answer to OPEN and CREATE tells the kernel."""

    DIRECT_IO = 1 << 0
    KEEP_CACHE = 1 << 1
    NOFLUSH = 1 << 5


WRITE_KILL_SUIDGID = 1 << 2
"""Of a WRITE's write_flags: the file loses setuid and setgid."""

NOTIFY_INVAL_INODE = 2
NOTIFY_INVAL_ENTRY = 3

# fuse_in_header: len, opcode, unique, nodeid, uid, gid, pid, total_extlen, padding.
IN_HEADER = struct.Struct("<IIQQIIIHH")
# fuse_out_header: len, error (negative errno), unique.
OUT_HEADER = struct.Struct("<IiQ")
# fuse_init_in: major, minor, max_readahead, flags, flags2, and 11 words unused.
INIT_IN = struct.Struct("<IIIII44x")
# fuse_init_out: major, minor, max_readahead, flags, max_background, congestion_threshold, max_write, time_gran,
# max_pages, map_alignment, flags2, and 7 words unused.
INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
# fuse_attr: ino, size, blocks, atime, mtime, ctime; atimensec, mtimensec, ctimensec, mode, nlink, uid, gid, rdev,
# blksize, flags.
_ATTR = "6Q10I"
# fuse_entry_out: nodeid, generation, entry_valid, attr_valid, entry_valid_nsec, attr_valid_nsec, attr.
ENTRY_OUT = struct.Struct("<4Q2I" + _ATTR)
# fuse_attr_out: attr_valid, attr_valid_nsec, dummy, attr.
ATTR_OUT = struct.Struct("<Q2I" + _ATTR)
# fuse_open_in: flags, open_flags.
OPEN_IN = struct.Struct("<II")
# fuse_open_out: fh, open_flags, padding.
OPEN_OUT = struct.Struct("<QII")
# fuse_create_in: flags, mode, umask, open_flags; the name follows.
CREATE_IN = struct.Struct("<IIII")
# fuse_read_in: fh, offset, size, read_flags, lock_owner, flags, padding.
READ_IN = struct.Struct("<QQIIQII")
# fuse_write_in: fh, offset, size, write_flags, lock_owner, flags, padding; the bytes follow.
WRITE_IN = struct.Struct("<QQIIQII")
# fuse_write_out: size, padding.
WRITE_OUT = struct.Struct("<II")
# fuse_release_in: fh, flags, release_flags, lock_owner.
RELEASE_IN = struct.Struct("<QIIQ")
# fuse_flush_in: fh, unused, padding, lock_owner.
FLUSH_IN = struct.Struct("<QIIQ")
# fuse_rename_in: newdir; both names follow. fuse_rename2_in: newdir, flags, padding; both names follow.
RENAME_IN = struct.Struct("<Q")
RENAME2_IN = struct.Struct("<QII")
# fuse_getxattr_in: size, padding; the name follows.
GETXATTR_IN = struct.Struct("<II")
# fuse_notify_inval_inode_out: ino, off, len.
INVAL_INODE_OUT = struct.Struct("<Qqq")
# fuse_notify_inval_entry_out: parent, namelen, flags; the name and a NUL follow.
INVAL_ENTRY_OUT = struct.Struct("<QII")

HEAD = IN_HEADER.size + WRITE_IN.size
"""Bytes before the data of a WRITE. A read that scatters this much into one buffer and the rest into a page-aligned one
finds the data aligned there."""


class MalformedRequest(HcfsError):
    """A request whose body isn't what its opcode says."""

    errno = EINVAL


def name_of(body: bytes) -> bytes:
    """The name in a body, which ends with its NUL. MalformedRequest without one."""
    name, end, _ = body.partition(b"\0")
    if not end or not name:
        raise MalformedRequest("a name without its end")
    return name


def names_of(body: bytes) -> tuple[bytes, bytes]:
    """Two names, each with its NUL. MalformedRequest without them."""
    first = name_of(body)
    return first, name_of(body[len(first) + 1 :])
