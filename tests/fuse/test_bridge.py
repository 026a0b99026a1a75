"""The bridge to libfuse, each of whose faults would be a hang."""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from hcfs.fuse.bridge import LARGEST_ANSWER, Bridge
from hcfs.fuse.connection import Connection
from hcfs.fuse.handshake import HandshakeFailed, shake_hands_with_kernel, shake_hands_with_library
from hcfs.fuse.protocol import HEAD, IN_HEADER, INIT_IN, INIT_OUT, OUT_HEADER, READ_IN, InitFlag, Opcode


class Ends:
    """A bridge, the kernel's end and libfuse's."""

    def __init__(self) -> None:
        self.kernel, daemon = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.bridge = Bridge()
        self.library = self.bridge.library
        self.broken: list[str] = []
        self.connection = Connection(daemon.detach())
        for end in (self.kernel, self.library):
            end.settimeout(10)
        self.bridge.start(self.connection, self.broken.append)

    def forward(self, opcode: int, body: bytes) -> bool:
        message = IN_HEADER.pack(IN_HEADER.size + len(body), opcode, 2, 1, 0, 0, 1, 0, 0) + body
        head = bytearray(message[:HEAD].ljust(HEAD, b"\0"))
        return self.bridge.forward(opcode, head, memoryview(message[HEAD:]), len(message))


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.bridge.stop()
    for end in (ends.library, ends.kernel):
        end.close()
    ends.bridge.close()
    ends.connection.close()


@pytest.mark.parametrize("size", [0, 39, 40, 41, 70_000])
def test_requests_pass_as_they_are(ends: Ends, size: int) -> None:
    body = os.urandom(size)
    assert ends.forward(Opcode.SETXATTR, body)
    assert ends.library.recv(1 << 17)[IN_HEADER.size :] == body


def test_answers_come_back_as_they_are(ends: Ends) -> None:
    for size in (0, 100, LARGEST_ANSWER):
        body = os.urandom(size)
        ends.library.send(OUT_HEADER.pack(OUT_HEADER.size + size, 0, 4) + body)
        assert ends.kernel.recv(1 << 18)[OUT_HEADER.size :] == body


def test_listings_are_asked_for_in_pieces_that_fit(ends: Ends) -> None:
    for opcode in (Opcode.READDIR, Opcode.READDIRPLUS):
        for asked in (4096, 1 << 20):
            ends.forward(opcode, READ_IN.pack(1, 0, asked, 0, 0, 0, 0))
            told = READ_IN.unpack_from(ends.library.recv(4096), IN_HEADER.size)[2]
            assert told == min(asked, LARGEST_ANSWER)


def test_a_notice_of_libfuse_is_never_carried(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    """Written by the thread that carries answers, it would wait for a LOOKUP whose answer waits behind it."""
    ends.library.send(OUT_HEADER.pack(OUT_HEADER.size, 3, 0))
    ends.library.send(OUT_HEADER.pack(OUT_HEADER.size, 0, 6))
    assert OUT_HEADER.unpack(ends.kernel.recv(4096)) == (OUT_HEADER.size, 0, 6)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    caplog.clear()


def test_a_library_that_takes_nothing_is_noticed(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    ends.bridge.plane.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, b"\0" * 8 + (200_000).to_bytes(8, "little"))
    sent = 0
    while ends.forward(Opcode.SETXATTR, b"x" * 60_000):
        sent += 1
        assert sent < 1000
    assert len(ends.broken) == 1


def test_a_library_that_is_gone_is_noticed(ends: Ends) -> None:
    ends.library.close()
    assert not ends.forward(Opcode.MKDIR, b"x" * 8)
    assert ends.broken == []


def kernel_speaks(major: int, minor: int, flags: int, flags2: int) -> tuple[socket.socket, Connection]:
    kernel, daemon = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    body = INIT_IN.pack(major, minor, 1 << 17, flags, flags2)
    kernel.send(IN_HEADER.pack(IN_HEADER.size + len(body), Opcode.INIT, 2, 0, 0, 0, 0, 0, 0) + body)
    return kernel, Connection(daemon.detach())


def test_init_agrees_on_what_both_know() -> None:
    kernel, connection = kernel_speaks(7, 45, 0xFFFFFFFF, 0xFFFFFFFF)
    with kernel:
        agreed = shake_hands_with_kernel(connection, max_background=256, max_readahead=1 << 22)
        answer = kernel.recv(4096)
    connection.close()
    assert OUT_HEADER.unpack_from(answer) == (OUT_HEADER.size + INIT_OUT.size, 0, 2)
    major, minor, readahead, flags, background, congestion, max_write, _, pages, _, flags2 = INIT_OUT.unpack_from(
        answer, OUT_HEADER.size
    )
    assert (major, minor, readahead, background, congestion) == (7, 38, 1 << 17, 256, 192)
    assert max_write == pages * 4096 == 1 << 20
    assert flags | flags2 << 32 == agreed
    assert InitFlag.PARALLEL_DIROPS in agreed


@pytest.mark.parametrize("speaks", [(7, 31, 0xFFFFFFFF, 0xFFFFFFFF), (8, 0, 0xFFFFFFFF, 0xFFFFFFFF), (7, 40, 0, 0)])
def test_a_kernel_that_cannot_is_refused(speaks: tuple[int, int, int, int]) -> None:
    kernel, connection = kernel_speaks(*speaks)
    with kernel, pytest.raises(HandshakeFailed, match=r"speaks FUSE"):
        shake_hands_with_kernel(connection, max_background=256, max_readahead=1 << 22)
    connection.close()


@pytest.mark.parametrize("answer", [None, b"", OUT_HEADER.pack(16, -errno.EPROTO, 1), OUT_HEADER.pack(16, 0, 77)])
def test_a_library_that_cannot_is_refused(answer: bytes | None) -> None:
    plane, library = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with plane, library:

        def speak() -> None:
            assert IN_HEADER.unpack_from(library.recv(4096))[1] == Opcode.INIT
            if answer:
                library.send(answer)
            else:
                library.shutdown(socket.SHUT_RDWR)

        thread = threading.Thread(target=speak)
        thread.start()
        with pytest.raises(HandshakeFailed):
            shake_hands_with_library(plane)
        thread.join()
