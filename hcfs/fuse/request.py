"""One request of the kernel, taken apart, and what may answer it."""

from __future__ import annotations

from enum import Enum

Body = bytes | bytearray | memoryview


class Forward(Enum):
    """Says that a request isn't for the data plane."""

    FORWARD = 0


FORWARD = Forward.FORWARD

Answer = Body | int
"""The body of a good answer, or an errno above zero."""


class Request:
    """What the kernel asks, from its header, and the body behind it."""

    __slots__ = ("body", "buffer", "gid", "nodeid", "opcode", "payload", "pid", "uid", "unique")

    def __init__(
        self,
        opcode: int,
        unique: int,
        nodeid: int,
        uid: int,
        gid: int,
        pid: int,
        body: bytes,
        buffer: memoryview | None = None,
        length: int = 0,
    ) -> None:
        """body: what follows the header, without the data of a WRITE. buffer, length: where that data is, and how
        much."""
        self.buffer = buffer
        """Used again when the request is answered."""
        self.payload = None if buffer is None else buffer[:length]
        """The data of a WRITE, page-aligned."""
        self.opcode = opcode
        self.unique = unique
        self.nodeid = nodeid
        self.uid = uid
        self.gid = gid
        self.pid = pid
        self.body = body
