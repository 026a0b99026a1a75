"""The data plane of a mount: threads serve the hot requests, and pyfuse3, behind a socket, all others."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress

import pyfuse3
import trio

from hcfs.device import Arena
from hcfs.errors import HcfsError
from hcfs.faults import attempt
from hcfs.filesystem.filesystem import Filesystem
from hcfs.frontends.data_plane_handlers import HotCalls
from hcfs.frontends.front_ends import attach, cannot_mount, run_library
from hcfs.frontends.operations import Operations
from hcfs.frontends.watchdog import Watchdog
from hcfs.fuse.bridge import Bridge
from hcfs.fuse.connection import Connection, NoHelper
from hcfs.fuse.handshake import MAX_WRITE, HandshakeFailed, shake_hands_with_kernel, shake_hands_with_library
from hcfs.fuse.limits import BACKGROUND, READ_AHEAD_KB
from hcfs.fuse.notices import Notices
from hcfs.fuse.payloads import Payloads
from hcfs.fuse.protocol import Opcode
from hcfs.fuse.workers import Workers
from hcfs.mountpoint.client import connection_of
from hcfs.mountpoint.guard import abort
from hcfs.mountpoint.mountpoint import unmount_now

log = logging.getLogger(__name__)

_ENDED_LIMIT = 5.0
"""Seconds for threads to see that the connection has ended."""


PAYLOADS_PART = 4
"""The buffers that WRITEs arrive in have this part of `--memory`, which the pool doesn't get."""

PAYLOADS_MAX = 512
"""Most WRITEs in the daemon at once. The kernel sends one for each thread that writes, and a WRITE that isn't read
holds up every request behind it: so where hundreds of threads wait for a device that stands still, this is more than
their part."""


WRITERS = 64
"""Threads that write at once whose WRITEs are to find room in that part: with less `--memory` WRITEs are smaller."""

SMALLEST_WRITE = 128 << 10
"""Bytes: any other request must fit, too, extended attributes of 64 KiB and their names among them."""


def pool_budget(memory: int) -> int:
    """Bytes of the pool of I/O buffers, of the bytes of `--memory`."""
    return memory - memory // PAYLOADS_PART


def write_bytes(memory: int) -> int:
    """Most bytes of a WRITE, with so many of `--memory`: a power of two."""
    fitting = memory // PAYLOADS_PART // WRITERS
    return min(MAX_WRITE, max(SMALLEST_WRITE, 1 << fitting.bit_length() >> 1))


class DataPlane:
    """A FrontEnd. See docs/dataplane.md for its parts and their dangers."""

    name = "threads"

    def __init__(
        self, filesystem: Filesystem, operations: Operations, path: str, options: set[str], memory: int
    ) -> None:
        """memory: bytes of `--memory`. Nothing is mounted yet."""
        self._path = path
        self._options = options
        self._bridge = Bridge()
        attach(operations, f"/dev/fd/{self._bridge.library.detach()}", options)
        self._hot = HotCalls(filesystem)
        self._write_bytes = write_bytes(memory)
        self._payloads = Payloads(Arena(self._write_bytes), PAYLOADS_MAX, memory // PAYLOADS_PART // self._write_bytes)
        self._connection: Connection | None = None
        self._number: int | None = None
        self._workers: Workers | None = None
        self._watchdog: Watchdog | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._told_to_end = False
        self.notices = Notices()

    async def serve(self, on_serving: Callable[[], None]) -> None:
        """HandshakeFailed when it can't serve here: nothing is mounted then, and a plain front end may try. HcfsError
        when nothing can be mounted at all."""
        self._token = trio.lowlevel.current_trio_token()
        failure: HcfsError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_library)
            try:
                await trio.to_thread.run_sync(self._begin, on_serving)
            except HcfsError as error:
                failure = error
                pyfuse3.terminate()
        await trio.to_thread.run_sync(self._finish)
        if failure is not None and not self._told_to_end:
            raise failure

    def end(self) -> None:
        self._told_to_end = True
        pyfuse3.terminate()

    def close(self) -> None:
        self._finish()
        pyfuse3.close(unmount=False)
        self._bridge.close()

    def requests(self) -> Mapping[str, int]:
        return _named(self._workers.served + self._workers.forwarded) if self._workers else {}

    def forwarded(self) -> Mapping[str, int]:
        return _named(self._workers.forwarded) if self._workers else {}

    def write_buffers(self) -> int:
        return self._payloads.bytes_made

    def hops(self) -> int:
        return self._workers.hops if self._workers else 0

    def _begin(self, on_serving: Callable[[], None]) -> None:
        """The hand-shake with libfuse comes first: while nothing is mounted, a failure leaves nothing behind."""
        shake_hands_with_library(self._bridge.plane)
        try:
            connection = Connection.mount(self._path, self._options)
        except NoHelper as error:
            raise HandshakeFailed(str(error)) from None
        except HcfsError as error:
            raise cannot_mount(self._path, str(error)) from None
        try:
            shake_hands_with_kernel(
                connection,
                max_background=BACKGROUND,
                max_readahead=READ_AHEAD_KB << 10,
                max_write=self._write_bytes,
            )
        except BaseException:
            unmount_now(self._path, lazy=True)
            # Else whoever has looked there meanwhile waits for ever.
            connection.close()
            raise
        self._connection = connection
        self._number = connection_of(self._path)
        self.notices.connection = connection
        self._bridge.start(connection, self._broken)
        self._workers = Workers(
            connection,
            self._bridge,
            self._hot.routes(),
            self._hot.control,
            self._payloads,
            others=[self._hot.origins],
            failed=self._hot.failed,
            on_end=self._ended,
        )
        self._workers.start()
        assert self._token is not None
        self._watchdog = Watchdog(self._token, self._broken)
        self._watchdog.start()
        on_serving()

    def _ended(self) -> None:
        """The mount is gone: pyfuse3's loop, which can't see that, ends by its own means."""
        assert self._token is not None
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(pyfuse3.terminate)

    def _broken(self, reason: str) -> None:
        log.critical("%s; the mount is given up, and calls that wait for it get errors", reason)
        if self._connection is not None:
            self._abort(self._connection)

    def _abort(self, connection: Connection) -> None:
        # Once a mount is gone, the kernel gives its number to the next one.
        if self._number is not None and not connection.ended:
            abort(self._number)

    def _finish(self) -> None:
        """Take the mount away, answer what was begun, and end the threads. May be called again. Blocks."""
        workers, connection = self._workers, self._connection
        if workers is None or connection is None:
            return
        self._connection = None
        if self._watchdog is not None:
            self._watchdog.stop()
        if connection_of(self._path) == self._number:
            attempt("unmounting", lambda: unmount_now(self._path, lazy=True))
        workers.finish()
        self._bridge.stop()
        # Whoever still has a file open there gets errors from now on, and the thread that waits for requests ends.
        self._abort(connection)
        self.notices.connection = None
        if workers.join(_ENDED_LIMIT):
            connection.close()
        else:
            log.info("a thread still waits for the kernel; the connection ends with the process")


def _named(counts: Counter[int]) -> dict[str, int]:
    return {_NAMES.get(opcode, str(opcode)): count for opcode, count in sorted(counts.items())}


_NAMES = {int(opcode): opcode.name for opcode in Opcode}
