"""Front ends: who speaks with the kernel for the filesystem."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Protocol

import pyfuse3
import trio

from hcfs.errors import HcfsError
from hcfs.frontends.notices import KernelNotices
from hcfs.frontends.operations import Operations
from hcfs.mountpoint.guard import identity

log = logging.getLogger(__name__)

MAX_TASKS = 4096
"""Handlers at once: at pyfuse3's 99 waiting opens would stop the mount."""


FUSE_DEVICE = "/dev/fuse"


class FrontEnd(Protocol):
    """One mount, from its beginning to its end."""

    name: str
    """As `data_plane` in the status says it."""

    @property
    def notices(self) -> KernelNotices:
        """What tells the kernel about its caches; usable while it is served."""

    async def serve(self, on_serving: Callable[[], None]) -> None:
        """Mount if it isn't done yet, and serve until the mount has ended or `end` was called. on_serving: called
        once, in any thread, when the kernel has shaken hands. Cancelled, it leaves calls without answers: call `end`
        instead."""

    def end(self) -> None:
        """Make `serve` return when it has answered what it has begun; from the thread of the loop."""

    def close(self) -> None:
        """Unmount, if that isn't done yet, and give everything back. Blocks."""

    def requests(self) -> Mapping[str, int]:
        """The kernel's requests so far, by their names in the protocol."""

    def forwarded(self) -> Mapping[str, int]:
        """Those of them that another front end was asked to serve."""

    def write_buffers(self) -> int:
        """Bytes of the buffers that WRITEs arrive in, beside the pool, as far as the front end knows."""

    def hops(self) -> int:
        """How often a request went from one thread to another, as far as the front end knows."""


class PyfuseNotices:
    """KernelNotices through pyfuse3's session."""

    def invalidate_entry(self, parent: int, name: bytes) -> None:
        pyfuse3.invalidate_entry(parent, name)

    def invalidate_inode(self, ino: int, attr_only: bool) -> None:
        pyfuse3.invalidate_inode(ino, attr_only)


class PyfuseFrontEnd:
    """Only pyfuse3, on libfuse's own mount."""

    name = "pyfuse3"

    def __init__(self, operations: Operations, path: str, options: set[str]) -> None:
        """Mount. HcfsError with libfuse's reason."""
        self._operations = operations
        self.notices: KernelNotices = PyfuseNotices()
        self._was_here = False
        """The kernel's list of connections can be seen, and has this one."""
        attach(operations, path, options)

    async def serve(self, on_serving: Callable[[], None]) -> None:
        self._operations.on_serving = on_serving
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._operations.let_go_at_the_end, self._is_gone)
            await run_library()
            nursery.cancel_scope.cancel()

    def _is_gone(self) -> bool:
        device = self._operations.device
        here = device is not None and identity(os.minor(device)) is not None
        self._was_here = self._was_here or here
        return self._was_here and not here

    def end(self) -> None:
        pyfuse3.terminate()

    def close(self) -> None:
        pyfuse3.close(unmount=True)

    def requests(self) -> Mapping[str, int]:
        return self._operations.requests

    def forwarded(self) -> Mapping[str, int]:
        return {}

    def write_buffers(self) -> int:
        return 0

    def hops(self) -> int:
        return 0


def cannot_mount(path: str, reason: str) -> HcfsError:
    """What to say when the kernel, or who mounts for it, refuses."""
    try:
        os.close(os.open(FUSE_DEVICE, os.O_RDWR | os.O_CLOEXEC))
        remedy = "'hcfs doctor' makes a trial mount elsewhere"
    except OSError as error:
        remedy = f"{FUSE_DEVICE} can't be opened ({error.strerror}), and 'hcfs doctor' says what to do about that"
    return HcfsError(f"{path} can't be mounted at: {reason}; {remedy}")


def attach(operations: Operations, path: str, options: set[str]) -> None:
    """Call pyfuse3.init. On stderr libfuse says why it couldn't, so that is caught and becomes HcfsError's reason."""
    # pyfuse3 takes ASCII alone: where it mounts, the mount table has question marks for a source's other letters.
    options = {each.encode("ascii", errors="replace").decode() for each in options}
    said = os.memfd_create("hcfs-fuse")
    stderr = os.dup(2)
    os.dup2(said, 2)
    try:
        pyfuse3.init(operations, path, options)
    except RuntimeError as error:
        text = os.pread(said, 4096, 0).decode(errors="replace").strip().replace("\n", "; ")
        raise cannot_mount(path, text or str(error)) from None
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(said)


async def run_library() -> None:
    """Run pyfuse3's main loop, until pyfuse3.terminate or the end of its connection. Its handlers may have been
    cancelled then, a RELEASE's among them."""
    try:
        await pyfuse3.main(max_tasks=MAX_TASKS)
    except* ConnectionAbortedError:
        # A read of /dev/fuse that was about to take a request when the connection ended: libfuse knows only ENODEV,
        # which the kernel answers a moment earlier or later.
        log.debug("the connection ended while a request was read")
