"""Notices to the kernel: what it has cached isn't right any more."""

from __future__ import annotations

import errno
import os

from hcfs.fuse.connection import Connection
from hcfs.fuse.protocol import (
    INVAL_ENTRY_OUT,
    INVAL_INODE_OUT,
    NOTIFY_INVAL_ENTRY,
    NOTIFY_INVAL_INODE,
    OUT_HEADER,
)


class Notices:
    """Written by threads of their own: each may wait in the kernel for a directory whose holder waits for an answer."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        """Where they go, once there is one; before, and after it is closed, they are refused as by a mount that is
        gone."""

    def invalidate_entry(self, parent: int, name: bytes) -> None:
        """Forget a name. Waits for the directory. OSError: ENOENT when nothing was cached."""
        body = INVAL_ENTRY_OUT.pack(parent, len(name), 0) + name + b"\0"
        self._send(NOTIFY_INVAL_ENTRY, body)

    def invalidate_inode(self, ino: int, attr_only: bool) -> None:
        """Forget attributes, and unless attr_only pages too, for which it waits. OSError: ENOENT when nothing was
        cached."""
        self._send(NOTIFY_INVAL_INODE, INVAL_INODE_OUT.pack(ino, -1 if attr_only else 0, 0))

    def _send(self, code: int, body: bytes) -> None:
        # An answer with id 0 is a notice, and its error is the notice's number.
        connection = self.connection
        if connection is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        connection.notify(OUT_HEADER.pack(OUT_HEADER.size + len(body), code, 0), body)
