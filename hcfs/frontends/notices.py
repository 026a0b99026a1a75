"""Telling the kernel: threads that send notifications, since each may wait for what the kernel is doing."""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Protocol

from hcfs.faults import attempt
from hcfs.filesystem.versions.version import Name

log = logging.getLogger(__name__)

_GONE = (errno.ENOENT, errno.ENOTCONN, errno.ENODEV, errno.EBADF)
"""Nothing was cached, or there is no kernel side any more."""

_ANSWERED_AFTER = 0.05
"""Seconds until an answer under way has surely been given to the kernel."""


_Queue = SimpleQueue[Callable[[], None] | None]


class KernelNotices(Protocol):
    """How a front end tells the kernel. OSError when the kernel doesn't take it: ENOENT where nothing was cached."""

    def invalidate_entry(self, parent: int, name: bytes) -> None:
        """Forget a name. May wait for the directory."""

    def invalidate_inode(self, ino: int, attr_only: bool) -> None:
        """Forget attributes, and unless attr_only pages. May wait for those."""


class Notifier:
    """The kernel's caches, through a front end's notices, between `start` and `stop`.

    invalidate_entry waits for the directory, which the kernel holds while it waits for our own answer about it: no
    handler may wait for it, and the thread that answers lookups least of all.
    """

    def __init__(self) -> None:
        self._queue: _Queue = SimpleQueue()
        self._patient_queue: _Queue = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._live = False
        self._notices: KernelNotices | None = None
        self.is_slow: Callable[[int], bool] = lambda _: False
        """Whether lookups in a directory may wait for long, as for an origin. A notice about its names waits with them,
        and is sent by a thread of its own: notices about other directories aren't to wait behind it."""

    def start(self, notices: KernelNotices) -> None:
        """Begin to send; after `stop`, through another front end."""
        self._notices = notices
        self._queue, self._patient_queue = SimpleQueue(), SimpleQueue()
        self._live = True
        self._threads = [
            threading.Thread(target=self._send, args=(queue,), name="hcfs-notify", daemon=True)
            for queue in (self._queue, self._patient_queue)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send nothing more; returns when the threads have ended, or are stuck in the kernel."""
        self._live = False
        for queue in (self._queue, self._patient_queue):
            queue.put(None)
        for thread in self._threads:
            thread.join(timeout=2.0)

    def forget_name(self, parent: int, name: bytes) -> None:
        queue = self._patient_queue if self.is_slow(parent) else self._queue
        self._later(lambda: self._entry(parent, name), queue)

    def forget_names_now(self, names: Iterable[Name]) -> None:
        for parent, name in names:
            if self._live:
                self._entry(parent, name)

    def forget_attributes(self, ino: int) -> None:
        self._later(lambda: self._inode(ino, attr_only=True))

    def forget_pages(self, ino: int) -> None:
        due = time.monotonic() + _ANSWERED_AFTER

        def send() -> None:
            time.sleep(max(0.0, due - time.monotonic()))
            self._inode(ino, attr_only=False)

        self._later(send)

    def _later(self, send: Callable[[], None], queue: _Queue | None = None) -> None:
        if self._live:
            (self._queue if queue is None else queue).put(send)

    def _send(self, queue: _Queue) -> None:
        while True:
            send = queue.get()
            if send is None:
                return
            if self._live:
                attempt("a notice to the kernel", send)

    def _entry(self, parent: int, name: bytes) -> None:
        assert self._notices is not None
        try:
            self._notices.invalidate_entry(parent, name)
        except OSError as error:
            if error.errno not in _GONE:
                log.info("the kernel didn't take the notice about name %r of %d: %s", name, parent, error)

    def _inode(self, ino: int, *, attr_only: bool) -> None:
        assert self._notices is not None
        try:
            self._notices.invalidate_inode(ino, attr_only)
        except OSError as error:
            if error.errno not in _GONE:
                log.info("the kernel didn't take the notice about inode %d: %s", ino, error)
