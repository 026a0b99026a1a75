"""The bridge to libfuse: what the data plane doesn't serve goes through a socket, verbatim, and its answer comes
back."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Callable

from hcfs.fuse.connection import Connection
from hcfs.fuse.protocol import IN_HEADER, OUT_HEADER, Opcode

log = logging.getLogger(__name__)

LARGEST_ANSWER = 64 << 10
"""Bytes of a listing: more wouldn't fit into the socket's buffer, in one message with its header."""

_STUCK = 60.0
"""Seconds without room in the socket, after which libfuse's loop is taken for dead."""

_LISTINGS = (Opcode.READDIR, Opcode.READDIRPLUS)
_SIZE_AT = IN_HEADER.size + 16
"""Of the size in a fuse_read_in."""


class Bridge:
    """A socket pair of whole messages, as /dev/fuse has them. libfuse's end is `library`: it takes `/dev/fd/N` for a
    mount point. `forward` is for one thread at a time."""

    def __init__(self) -> None:
        self.plane, self.library = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self.plane, self.library):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * LARGEST_ANSWER)
        self._thread: threading.Thread | None = None

    def start(self, connection: Connection, on_broken: Callable[[str], None]) -> None:
        """Begin to carry answers back. on_broken: called, in any thread, when libfuse doesn't take requests any
        more."""
        self._on_broken = on_broken
        self._connection = connection
        # A blocking send that ends: Python's own timeout would make receiving end too.
        timeout = struct.pack("<qq", int(_STUCK), 0)
        self.plane.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        self._thread = threading.Thread(target=self._carry_back, name="hcfs-bridge", daemon=True)
        self._thread.start()

    def forward(self, opcode: int, head: bytearray, payload: memoryview, length: int) -> bool:
        """Hand a request of `length` bytes over. False when libfuse is gone: the caller answers it."""
        if opcode in _LISTINGS:
            (size,) = struct.unpack_from("<I", head, _SIZE_AT)
            struct.pack_into("<I", head, _SIZE_AT, min(size, LARGEST_ANSWER))
        first = min(length, len(head))
        try:
            self.plane.sendmsg([memoryview(head)[:first], payload[: length - first]])
        except BlockingIOError:
            self._on_broken(f"the main loop took no request for {_STUCK:g} s")
            return False
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """Forward nothing more, and return when the last answer that came is carried back."""
        self.plane.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Close the plane's end. libfuse closes the other one itself, once it was given it."""
        self.plane.close()

    def _carry_back(self) -> None:
        buffer = memoryview(bytearray(4 * LARGEST_ANSWER))
        while True:
            try:
                length = self.plane.recv_into(buffer)
            except OSError as error:
                # Requests go on coming, and would wait for ever.
                self._on_broken(f"libfuse's answers can't be read any more ({error})")
                return
            if not length:
                return
            if length < OUT_HEADER.size:
                log.error("libfuse sent %d bytes through the bridge, which are no answer; they are dropped", length)
                continue
            _, code, unique = OUT_HEADER.unpack_from(buffer)
            if not unique:
                # A notice: written here it would wait for a LOOKUP whose answer waits behind it, for ever.
                log.error("libfuse sent the notice %d through the bridge; it is dropped", code)
                continue
            try:
                self._connection.send(buffer[:length])
            except OSError as error:
                log.error("the kernel refused libfuse's answer %d to request %d: %s", code, unique, error)
