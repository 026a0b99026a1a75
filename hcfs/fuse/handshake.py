"""INIT: what the data plane agrees on with the kernel, and what libfuse is told."""

from __future__ import annotations

import os
import select
import socket

from hcfs.errors import HcfsError
from hcfs.fuse.connection import Connection
from hcfs.fuse.protocol import (
    IN_HEADER,
    INIT_IN,
    INIT_OUT,
    MAJOR,
    MINOR,
    OLDEST_MINOR,
    OUT_HEADER,
    InitFlag,
    Opcode,
)

MAX_WRITE = 1 << 20
"""Bytes of a WRITE or READ at most: requests of 2 and 4 MiB were measured slower."""

_PAGE = 4096
_TIME_LIMIT = 10.0
"""Seconds for either side to shake hands."""

_LIBRARY_MINOR = 13
"""At this version libfuse never splices, and its bodies have today's layout for all that is forwarded."""

_WANTED = (
    InitFlag.ASYNC_READ
    | InitFlag.ATOMIC_O_TRUNC
    | InitFlag.EXPORT_SUPPORT
    | InitFlag.BIG_WRITES
    | InitFlag.DO_READDIRPLUS
    | InitFlag.ASYNC_DIO
    | InitFlag.PARALLEL_DIROPS
    | InitFlag.MAX_PAGES
    | InitFlag.EXPLICIT_INVAL_DATA
    | InitFlag.HANDLE_KILLPRIV_V2
    | InitFlag.INIT_EXT
    | InitFlag.DIRECT_IO_ALLOW_MMAP
)
_NEEDED = InitFlag.BIG_WRITES | InitFlag.DO_READDIRPLUS | InitFlag.MAX_PAGES | InitFlag.PARALLEL_DIROPS

_INIT_UNIQUE = 1
"""Of the INIT made up for libfuse; the kernel's own numbers are even."""


class HandshakeFailed(HcfsError):
    """The data plane can't be used here; a mount without it may."""


def shake_hands_with_kernel(
    connection: Connection, *, max_background: int, max_readahead: int, max_write: int = MAX_WRITE
) -> InitFlag:
    """Answer INIT, the first request of a connection; the flags agreed on. Blocks. HandshakeFailed for a kernel that is
    too old or doesn't ask in time. max_readahead, max_write: bytes; READs have MAX_WRITE in any case."""
    if not select.select([connection.fd], [], [], _TIME_LIMIT)[0]:
        raise HandshakeFailed(f"the kernel didn't begin to speak within {_TIME_LIMIT:g} s")
    head, rest = bytearray(IN_HEADER.size), memoryview(bytearray(MAX_WRITE + _PAGE))
    length = connection.receive(head, rest)
    _, opcode, unique, *_ = IN_HEADER.unpack(head)
    if opcode != Opcode.INIT or length < IN_HEADER.size + INIT_IN.size:
        raise HandshakeFailed("the kernel's first request isn't an INIT of a version that has flags2")
    major, minor, readahead, flags, flags2 = INIT_IN.unpack_from(rest)
    offered = InitFlag(flags | flags2 << 32)
    if major != MAJOR or minor < OLDEST_MINOR or offered & _NEEDED != _NEEDED:
        raise HandshakeFailed(f"the kernel speaks FUSE {major}.{minor}; {MAJOR}.{OLDEST_MINOR} is needed")
    agreed = offered & _WANTED
    body = INIT_OUT.pack(
        MAJOR,
        MINOR,
        min(readahead, max_readahead),
        agreed & 0xFFFFFFFF,
        max_background,
        max_background * 3 // 4,
        max_write,
        1,
        MAX_WRITE // _PAGE,
        0,
        agreed >> 32,
    )
    connection.send(OUT_HEADER.pack(OUT_HEADER.size + len(body), 0, unique), body)
    return agreed


def shake_hands_with_library(sock: socket.socket) -> None:
    """Send INIT to libfuse, whose loop must be running, and take its answer. Blocks. HandshakeFailed when there is none
    or it is a refusal."""
    flags = InitFlag.EXPORT_SUPPORT | InitFlag.ATOMIC_O_TRUNC | InitFlag.BIG_WRITES | InitFlag.DO_READDIRPLUS
    flags |= InitFlag.PARALLEL_DIROPS | InitFlag.MAX_PAGES
    # At this version fuse_init_in ends with its flags.
    body = INIT_IN.pack(MAJOR, _LIBRARY_MINOR, MAX_WRITE, flags, 0)[:16]
    header = IN_HEADER.pack(IN_HEADER.size + len(body), Opcode.INIT, _INIT_UNIQUE, 0, 0, 0, os.getpid(), 0, 0)
    sock.settimeout(_TIME_LIMIT)
    try:
        sock.sendmsg([header, body])
        answer = sock.recv(_PAGE)
    except OSError as error:
        raise HandshakeFailed(f"libfuse doesn't speak over a socket here: {error}") from error
    finally:
        sock.settimeout(None)
    if len(answer) < OUT_HEADER.size:
        raise HandshakeFailed("libfuse ended instead of answering INIT")
    _, code, unique = OUT_HEADER.unpack_from(answer)
    if code or unique != _INIT_UNIQUE:
        raise HandshakeFailed(f"libfuse refused INIT: {os.strerror(-code)}")
