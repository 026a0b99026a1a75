"""A mount and the descriptor that its requests come from."""

from __future__ import annotations

import errno
import logging
import os
import select
import shutil
import socket
import subprocess
from collections.abc import Iterable

from hcfs.errors import HcfsError

log = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview

_UNANSWERABLE = (errno.ENOENT, errno.ENODEV, errno.ENOTCONN, errno.ECONNABORTED)
"""The caller was killed, or the mount is gone: nobody waits for the answer."""


class NoHelper(HcfsError):
    """There is no fusermount3. Root can do without it, by libfuse's own mount(2)."""


class Connection:
    """One FUSE connection. Thread-safe; `receive` is for one thread at a time."""

    def __init__(self, fd: int) -> None:
        """fd: of /dev/fuse, mounted; it belongs to this object from now on."""
        self.fd = fd

    @classmethod
    def mount(cls, path: str, options: Iterable[str]) -> Connection:
        """Mount at `path` through fusermount3, for root as for others: it knows mount(8)'s words, escapes and
        /etc/fuse.conf.

        options: as of libfuse. NoHelper; HcfsError with fusermount3's own reason. Blocks for as long as it runs.
        """
        helper = shutil.which("fusermount3")
        if helper is None:
            raise NoHelper("fusermount3 isn't installed; install the package fuse3")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, theirs:
            command = [helper, "-o", ",".join(sorted(options)), "--", path]
            done = subprocess.run(
                command,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                text = done.stderr.strip().replace("\n", "; ")
                raise HcfsError(text or f"fusermount3 ended with exit code {done.returncode}")
            _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        os.set_inheritable(fds[0], False)
        return cls(fds[0])

    def receive(self, head: bytearray, payload: memoryview) -> int:
        """The next request, scattered over both buffers; its length, or 0 when the mount has ended. Blocks."""
        while True:
            try:
                return os.readv(self.fd, (head, payload))
            except OSError as error:
                if error.errno in (errno.ENODEV, errno.ECONNABORTED, errno.EBADF):
                    return 0
                # ENOENT: the request was given up by its caller between its wake-up and this read.
                if error.errno not in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    raise

    def send(self, *parts: Buffer) -> bool:
        """Answer a request, in one piece; False when nobody waits for the answer any more."""
        try:
            os.writev(self.fd, parts)
        except OSError as error:
            if error.errno in _UNANSWERABLE:
                return False
            raise
        return True

    def notify(self, *parts: Buffer) -> None:
        """Send a notice; it may wait for what the kernel is doing. OSError as the kernel answers it."""
        os.writev(self.fd, parts)

    @property
    def ended(self) -> bool:
        """Whether the mount is gone, or was aborted: then what its number was may be another mount's by now."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return any(events & select.POLLERR for _, events in poll.poll(0))

    def close(self) -> None:
        """End the connection, when this was its only descriptor. No other call may follow, or be under way."""
        os.close(self.fd)
