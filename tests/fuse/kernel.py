"""The kernel's side of a connection without a mount: a socket of whole messages in the place of /dev/fuse."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping

from hcfs.device import Arena
from hcfs.fuse.bridge import Bridge
from hcfs.fuse.connection import Connection
from hcfs.fuse.handshake import MAX_WRITE
from hcfs.fuse.lanes import Lane
from hcfs.fuse.payloads import Payloads
from hcfs.fuse.protocol import IN_HEADER, OUT_HEADER
from hcfs.fuse.request import Request
from hcfs.fuse.workers import Handler, Route, Workers


class Kernel:
    """Sends requests and takes answers, in any order."""

    def __init__(self, routes: Mapping[int, Handler | Route], *, payloads: int = 4, control: int = 2) -> None:
        self._sock, daemon = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._sock, daemon):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self._sock.settimeout(10)
        self.ended = threading.Event()
        self.failures: list[BaseException] = []
        self.connection = Connection(daemon.detach())
        self.bridge = Bridge()
        self.bridge.library.settimeout(10)
        self.bridge.start(self.connection, lambda _: None)
        self.payloads = Payloads(Arena(MAX_WRITE), payloads, payloads)
        full = {opcode: each if isinstance(each, Route) else Route(each) for opcode, each in routes.items()}
        self.workers = Workers(
            self.connection, self.bridge, full, Lane(control), self.payloads, failed=self._failed, on_end=self.ended.set
        )
        self.workers.start()
        self._unique = 0

    def _failed(self, _: Request, error: BaseException) -> int:
        self.failures.append(error)
        return 5

    def send(self, opcode: int, body: bytes = b"", *, nodeid: int = 1, length: int | None = None) -> int:
        """Send a request; its id. length: a lie about it."""
        self._unique += 2
        size = IN_HEADER.size + len(body) if length is None else length
        self._sock.send(IN_HEADER.pack(size, opcode, self._unique, nodeid, 0, 0, 1, 0, 0) + body)
        return self._unique

    def answer(self) -> tuple[int, int, bytes]:
        """The next answer: id, errno, body."""
        message = self._sock.recv(MAX_WRITE)
        length, error, unique = OUT_HEADER.unpack_from(message)
        assert length == len(message)
        return unique, -error, message[OUT_HEADER.size :]

    def ask(self, opcode: int, body: bytes = b"", **more: int) -> tuple[int, bytes]:
        """Send, and take the answer: errno, body."""
        unique = self.send(opcode, body, **more)
        answered, error, answer = self.answer()
        assert answered == unique
        return error, answer

    def silent(self) -> bool:
        """Whether no answer comes within a moment."""
        self._sock.settimeout(0.2)
        try:
            self._sock.recv(MAX_WRITE)
        except TimeoutError:
            return True
        finally:
            self._sock.settimeout(10)
        return False

    def close(self) -> None:
        """Unmount, as it were: the threads must end."""
        self._sock.close()
        assert self.workers.join(10)
        assert self.ended.is_set()
        self.bridge.stop()
        self.bridge.library.close()
        self.bridge.close()
        self.connection.close()


def waiting_for(event: threading.Event, answer: bytes) -> Callable[[Request], bytes]:
    """A handler that answers when the event is set."""

    def handler(_: Request) -> bytes:
        assert event.wait(10)
        return answer

    return handler
