"""Handlers for pyfuse3: each calls the filesystem and puts the answer into pyfuse3's types."""

from __future__ import annotations

import errno
import functools
import inspect
import logging
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, ParamSpec, TypeVar

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, ReaddirToken, RequestContext, SetattrFields, StatvfsData

from hcfs.errors import HcfsError
from hcfs.filesystem.calls import Awaiting, Blocking, Caller, Entry, Opened
from hcfs.filesystem.filesystem import Filesystem
from hcfs.filesystem.operations.attribute_changes import Changes
from hcfs.fuse.limits import CONTROL_THREADS, ORIGIN_THREADS, READ_THREADS, WRITE_THREADS
from hcfs.store import BLOCK, NAME_MAX, Attributes

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between looks whether the mount, for which READs wait, is still there."""

P = ParamSpec("P")
T = TypeVar("T")

LISTED_AT_ONCE = 256
"""Entries in one answer, some 3 ms: newer kernels have room for thousands in it, and everybody else waits meanwhile."""


def handler(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Let nothing but FUSEError out: pyfuse3's main loop, and the mount with it, ends at anything else, of whatever
    class. What trio cancels a task with goes on, since trio waits for it; that is when the loop ends."""
    name = method.__name__
    opcode = name.upper()
    by_handle = "fh" in inspect.signature(method).parameters and "inode" not in inspect.signature(method).parameters

    @functools.wraps(method)
    async def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            _count(args, opcode)
            return await method(*args, **kwargs)
        except (FUSEError, trio.Cancelled, GeneratorExit):
            raise
        except HcfsError as error:
            raise FUSEError(error.errno) from None
        except BaseException:
            log.exception("%s%s failed unexpectedly; the call gets EIO", name, _where(args, by_handle))
            raise FUSEError(errno.EIO) from None

    return wrapped


class Operations(pyfuse3.Operations):
    """Operations on memory are called as they are; they make no checkpoint, so requests that arrive in order (a
    RELEASE, then another process's LOOKUP) are served in order. What waits for I/O runs in worker threads, which can't
    be cancelled: the kernel waits for each answer."""

    supports_dot_lookup = True
    enable_writeback_cache = False

    def __init__(self, filesystem: Filesystem) -> None:
        super().__init__()
        self._fs = filesystem
        self.on_serving: Callable[[], None] = lambda: None
        """Called once, when pyfuse3's other side has shaken hands."""
        self.requests: Counter[str] = Counter()
        """Requests so far by the name of their opcode (READ, WRITE, LOOKUP ...)."""
        self._reads = trio.CapacityLimiter(READ_THREADS)
        self._writes = trio.CapacityLimiter(WRITE_THREADS)
        self._control = trio.CapacityLimiter(CONTROL_THREADS)
        self._origins = trio.CapacityLimiter(ORIGIN_THREADS)
        self._parked: set[trio.Event] = set()
        self._ended = False

    @property
    def device(self) -> int | None:
        """The st_dev of the mount's files, as far as it is known."""
        return self._fs.volume.device

    def init(self) -> None:
        self.on_serving()

    def count(self, opcode: str) -> None:
        """A request came; called in the loop's thread alone."""
        self.requests[opcode] += 1

    def where(self, args: Sequence[object], by_handle: bool) -> str:
        """The path that a handler's arguments speak of, for the log."""
        number = next((arg for arg in args if isinstance(arg, int)), 0)
        name = next((arg for arg in args[1:2] if isinstance(arg, bytes)), b"")
        path = self._fs.path_of_handle(number) if by_handle else self._fs.path_of(number)
        return f" of {os.path.join(path, name).decode(errors='backslashreplace')!r}"

    async def _make(self, make: Callable[[], T | Blocking[T]]) -> T:
        return await self._finish(self._fs.with_room(make))

    async def _finish(self, answer: T | Blocking[T]) -> T:
        if isinstance(answer, Blocking):
            return await trio.to_thread.run_sync(answer.run, limiter=self._origins if answer.origin else self._control)
        return answer

    # --- names -------------------------------------------------------------------------------------------------------

    @handler
    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        return _entry(await self._finish(self._fs.lookup(parent_inode, name, _caller(ctx))))

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        # Inode numbers are object ids, which are never used twice: nothing is kept for the kernel's sake.
        self.count("FORGET")

    @handler
    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        return _entry(await self._make(lambda: self._fs.mkdir(parent_inode, name, mode, _caller(ctx))))

    @handler
    async def mknod(
        self,
        parent_inode: int,
        name: bytes,
        mode: int,
        rdev: int,
        ctx: RequestContext,
    ) -> EntryAttributes:
        return _entry(await self._make(lambda: self._fs.mknod(parent_inode, name, mode, _caller(ctx))))

    @handler
    async def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        return _entry(await self._make(lambda: self._fs.symlink(parent_inode, name, target, _caller(ctx))))

    @handler
    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        return self._fs.readlink(inode)

    @handler
    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        await self._finish(self._fs.unlink(parent_inode, name, _caller(ctx)))

    @handler
    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        self._fs.rmdir(parent_inode, name)

    @handler
    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        caller = _caller(ctx)
        await self._make(lambda: self._fs.rename(parent_inode_old, name_old, parent_inode_new, name_new, flags, caller))

    @handler
    async def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        return _entry(await self._make(lambda: self._fs.link(inode, new_parent_inode, new_name, _caller(ctx))))

    # --- attributes --------------------------------------------------------------------------------------------------

    @handler
    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        return _entry(self._fs.getattr(inode))

    @handler
    async def setattr(
        self, inode: int, attr: EntryAttributes, fields: SetattrFields, fh: int | None, ctx: RequestContext
    ) -> EntryAttributes:
        changes = Changes(
            mode=attr.st_mode if fields.update_mode else None,
            uid=attr.st_uid if fields.update_uid else None,
            gid=attr.st_gid if fields.update_gid else None,
            size=attr.st_size if fields.update_size else None,
            atime_ns=attr.st_atime_ns if fields.update_atime else None,
            mtime_ns=attr.st_mtime_ns if fields.update_mtime else None,
        )
        return _entry(await self._finish(self._fs.setattr(inode, changes, fh, _caller(ctx))))

    @handler
    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        space = self._fs.statfs()
        answer = StatvfsData()
        # LMCache takes f_bsize as the unit of O_DIRECT, so it is the block size and not what transfers best.
        answer.f_bsize = answer.f_frsize = BLOCK
        answer.f_blocks, answer.f_bfree, answer.f_bavail = space.blocks, space.free, space.available
        answer.f_files, answer.f_ffree, answer.f_favail = space.files, space.files_free, space.files_free
        answer.f_namemax = NAME_MAX
        return answer

    @handler
    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        return await self._finish(self._fs.getxattr(inode, name))

    @handler
    async def listxattr(self, inode: int, ctx: RequestContext) -> Sequence[bytes]:
        return self._fs.listxattr(inode)

    @handler
    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        await self._make(lambda: self._fs.setxattr(inode, name, value, _caller(ctx)))
        store = self._fs.volume.store
        if store.durability.backlog_full:
            await trio.to_thread.run_sync(store.commit, limiter=self._control)

    @handler
    async def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        self._fs.removexattr(inode, name, _caller(ctx))

    # --- files -------------------------------------------------------------------------------------------------------

    @handler
    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        return _file(await self._finish(self._fs.open(inode, flags, _caller(ctx))))

    @handler
    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        caller = _caller(ctx)
        entry, opened = await self._make(lambda: self._fs.create(parent_inode, name, mode, flags, caller))
        return _file(opened), _entry(entry)

    @handler
    async def read(self, fh: int, off: int, size: int) -> Any:
        while isinstance(content := self._fs.read(fh, off, size), Awaiting):
            await self._something(content)
        if isinstance(content, Blocking):
            content = await trio.to_thread.run_sync(content.run, limiter=self._reads)
        return content

    async def _something(self, awaiting: Awaiting) -> None:
        """Return when there is something to answer, and raise EIO when the mount has ended. A checkpoint; cancelled, it
        leaves nothing."""
        came = trio.Event()
        token = trio.lowlevel.current_trio_token()

        def set_in_loop() -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(came.set)

        awaiting.call_back(set_in_loop)
        self._parked.add(came)
        try:
            await came.wait()
        finally:
            self._parked.discard(came)
        if self._ended:
            raise FUSEError(errno.EIO)

    async def let_go_at_the_end(self, ended: Callable[[], bool]) -> None:
        """Let go of what still waits for an origin when the kernel has given the mount up: pyfuse3's loop would wait
        for it. ended: whether it has. Sleeps until then; cancelled, it leaves nothing."""
        while not ended() or not self._parked:
            await trio.sleep(LOOK_S)
        self._ended = True
        for came in self._parked:
            came.set()

    @handler
    async def write(self, fh: int, off: int, buf: bytes) -> int:
        return await trio.to_thread.run_sync(self._fs.write, fh, off, buf, limiter=self._writes)

    @handler
    async def flush(self, fh: int) -> None:
        await self._finish(self._fs.flush(fh))

    @handler
    async def fsync(self, fh: int, datasync: bool) -> None:
        await trio.to_thread.run_sync(self._fs.fsync, fh, limiter=self._control)

    @handler
    async def release(self, fh: int) -> None:
        self._fs.release(fh)

    # --- directories -------------------------------------------------------------------------------------------------

    @handler
    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        return self._fs.opendir(inode, _caller(ctx)).handle

    @handler
    async def readdir(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        if not start_id:
            await self._finish(self._fs.begin_listing(fh))
        for name, entry, position in islice(self._fs.readdir(fh, start_id), LISTED_AT_ONCE):
            if not pyfuse3.readdir_reply(token, name, _entry(entry), position):
                break

    @handler
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        await trio.to_thread.run_sync(self._fs.fsync, fh, limiter=self._control)

    @handler
    async def releasedir(self, fh: int) -> None:
        self._fs.release(fh)


def _count(args: Sequence[object], opcode: str) -> None:
    if isinstance(args[0], Operations):
        args[0].count(opcode)


def _where(args: Sequence[object], by_handle: bool) -> str:
    operations = args[0]
    try:
        return operations.where(args[1:], by_handle) if isinstance(operations, Operations) else ""
    except BaseException as error:
        return f" of what can't be named ({error})"


def _caller(ctx: RequestContext) -> Caller:
    return Caller(ctx.pid, ctx.uid, ctx.gid)


def _file(opened: Opened) -> FileInfo:
    return FileInfo(fh=opened.handle, direct_io=opened.direct_io, keep_cache=opened.keep_cache)


def _entry(entry: Entry) -> EntryAttributes:
    answer = EntryAttributes()
    answer.st_ino = entry.ino
    answer.entry_timeout = entry.entry_timeout
    answer.attr_timeout = entry.attr_timeout
    if entry.attributes is not None:
        _fill(answer, entry.attributes)
    return answer


def _fill(answer: EntryAttributes, attributes: Attributes) -> None:
    answer.st_mode = attributes.mode
    answer.st_nlink = attributes.nlink
    answer.st_uid = attributes.uid
    answer.st_gid = attributes.gid
    answer.st_size = attributes.size
    answer.st_blocks = attributes.blocks * (BLOCK // 512)
    answer.st_blksize = BLOCK
    answer.st_atime_ns = attributes.atime_ns
    answer.st_mtime_ns = attributes.mtime_ns
    answer.st_ctime_ns = attributes.ctime_ns
