"""The requests that are served without pyfuse3: each calls the filesystem and puts the answer into the kernel's
layout."""

from __future__ import annotations

import errno
import logging
import os
import struct
from collections.abc import Callable, Mapping
from typing import TypeVar

from hcfs.errors import HcfsError
from hcfs.filesystem.calls import Awaiting, Blocking, Caller, Entry, Opened
from hcfs.filesystem.filesystem import Filesystem
from hcfs.filesystem.operations.xattrs import USER
from hcfs.fuse.handshake import MAX_WRITE
from hcfs.fuse.lanes import InLane, Lane, Parked
from hcfs.fuse.limits import CONTROL_THREADS, ORIGIN_THREADS, READ_THREADS, WRITE_THREADS
from hcfs.fuse.protocol import (
    ATTR_OUT,
    CREATE_IN,
    ENTRY_OUT,
    FLUSH_IN,
    GETXATTR_IN,
    OPEN_IN,
    OPEN_OUT,
    READ_IN,
    RELEASE_IN,
    RENAME2_IN,
    RENAME_IN,
    WRITE_IN,
    WRITE_KILL_SUIDGID,
    WRITE_OUT,
    MalformedRequest,
    Opcode,
    OpenFlag,
    name_of,
    names_of,
)
from hcfs.fuse.request import FORWARD, Answer, Forward, Request
from hcfs.fuse.workers import Later, Route
from hcfs.store import BLOCK, Attributes

log = logging.getLogger(__name__)

T = TypeVar("T")

_SECOND = 1_000_000_000
_BY_HANDLE = frozenset((Opcode.READ, Opcode.WRITE, Opcode.FLUSH, Opcode.RELEASE))
_NAME_AT = {
    Opcode.LOOKUP: 0,
    Opcode.CREATE: CREATE_IN.size,
    Opcode.RENAME: RENAME_IN.size,
    Opcode.RENAME2: RENAME2_IN.size,
}
_DONE = b""
_WORD = (1 << 64) - 1
"""Times before 1970 are negative, and travel as unsigned words."""


class HotCalls:
    """Handlers over one filesystem, as hcfs.fuse.workers calls them: what they answer comes from memory, what would
    wait is handed back as a function."""

    def __init__(self, filesystem: Filesystem) -> None:
        self._fs = filesystem
        self.control = Lane(CONTROL_THREADS)
        self.origins = Lane(ORIGIN_THREADS)
        self._reads = Lane(READ_THREADS)
        self._writes = Lane(WRITE_THREADS)

    def routes(self) -> Mapping[int, Route]:
        """Who serves what; every other opcode is forwarded."""
        return {
            Opcode.LOOKUP: Route(self._lookup),
            Opcode.GETATTR: Route(self._getattr),
            Opcode.OPEN: Route(self._open),
            Opcode.CREATE: Route(self._create),
            Opcode.READ: Route(self._read, self._reads),
            Opcode.WRITE: Route(self._write, self._writes),
            Opcode.FLUSH: Route(self._flush),
            Opcode.RELEASE: Route(self._release),
            Opcode.RENAME: Route(self._rename),
            Opcode.RENAME2: Route(self._rename2),
            Opcode.GETXATTR: Route(self._getxattr),
            Opcode.DESTROY: Route(self._destroy),
        }

    def failed(self, request: Request, error: BaseException) -> int:
        """The errno for what a handler raised; what isn't the user's or the medium's fault is logged, and is EIO."""
        if isinstance(error, HcfsError):
            return error.errno
        if isinstance(error, struct.error):
            return MalformedRequest.errno
        operation = Opcode(request.opcode).name.lower()
        log.error("%s%s failed unexpectedly; the call gets EIO", operation, self._where(request), exc_info=error)
        return errno.EIO

    def _where(self, request: Request) -> str:
        try:
            if request.opcode in _BY_HANDLE:
                path = self._fs.path_of_handle(int.from_bytes(request.body[:8], "little"))
            else:
                path = self._fs.path_of(request.nodeid)
                if request.opcode in _NAME_AT:
                    path = os.path.join(path, name_of(request.body[_NAME_AT[Opcode(request.opcode)] :]))
        except BaseException as error:
            return f" of inode {request.nodeid} ({error})"
        return f" of {path.decode(errors='backslashreplace')!r}"

    # --- names and attributes ----------------------------------------------------------------------------------------

    def _lookup(self, request: Request) -> Answer | Later:
        return self._then(self._fs.lookup(request.nodeid, name_of(request.body), _caller(request)), _entry)

    def _getattr(self, request: Request) -> Answer:
        entry = self._fs.getattr(request.nodeid)
        assert entry.attributes is not None
        return ATTR_OUT.pack(*_timeout(entry.attr_timeout), 0, *_attributes(entry.attributes))

    def _rename(self, request: Request) -> Answer | Later:
        (parent,) = RENAME_IN.unpack_from(request.body)
        return self._rename_to(request, parent, 0, RENAME_IN.size)

    def _rename2(self, request: Request) -> Answer | Later:
        parent, flags, _ = RENAME2_IN.unpack_from(request.body)
        return self._rename_to(request, parent, flags, RENAME2_IN.size)

    def _rename_to(self, request: Request, parent: int, flags: int, names_at: int) -> Answer | Later:
        old, new = names_of(request.body[names_at:])
        caller = _caller(request)
        renamed = self._fs.with_room(lambda: self._fs.rename(request.nodeid, old, parent, new, flags, caller))
        return self._then(renamed, lambda _: _DONE)

    def _getxattr(self, request: Request) -> Answer | Forward:
        """The kernel's own probes (security.capability and the like) are answered; a user's question is forwarded."""
        name = name_of(request.body[GETXATTR_IN.size :])
        return FORWARD if name.startswith(USER) else errno.ENODATA

    # --- files -------------------------------------------------------------------------------------------------------

    def _open(self, request: Request) -> Answer | Later:
        flags, _ = OPEN_IN.unpack_from(request.body)
        reads = flags & os.O_ACCMODE == os.O_RDONLY and not flags & os.O_TRUNC
        return self._then(
            self._fs.open(request.nodeid, flags, _caller(request)), lambda opened: _opened(opened, reads_only=reads)
        )

    def _create(self, request: Request) -> Answer | Later:
        flags, mode, _, _ = CREATE_IN.unpack_from(request.body)
        name = name_of(request.body[CREATE_IN.size :])
        caller = _caller(request)
        created = self._fs.with_room(lambda: self._fs.create(request.nodeid, name, mode, flags, caller))
        return self._then(created, lambda made: _entry(made[0]) + _opened(made[1], reads_only=False))

    def _read(self, request: Request) -> Answer | Parked:
        handle, offset, size, *_ = READ_IN.unpack_from(request.body)
        content = self._fs.read(handle, offset, min(size, MAX_WRITE))
        if isinstance(content, Awaiting):
            return Parked(content.call_back)
        return content.run() if isinstance(content, Blocking) else content

    def _write(self, request: Request) -> Answer:
        handle, offset, size, flags, *_ = WRITE_IN.unpack_from(request.body)
        payload = request.payload
        if payload is None or size > len(payload):
            raise MalformedRequest("a WRITE with less data than it says")
        drops = bool(flags & WRITE_KILL_SUIDGID)
        return WRITE_OUT.pack(self._fs.write(handle, offset, payload[:size], drops_privileges=drops), 0)

    def _flush(self, request: Request) -> Answer | Later:
        handle, *_ = FLUSH_IN.unpack_from(request.body)
        return self._then(self._fs.flush(handle), lambda _: _DONE)

    def _release(self, request: Request) -> Answer:
        handle, *_ = RELEASE_IN.unpack_from(request.body)
        self._fs.release(handle)
        return _DONE

    def _then(self, answer: T | Blocking[T], encode: Callable[[T], Answer]) -> Answer | Later:
        if not isinstance(answer, Blocking):
            return encode(answer)

        def run() -> Answer:
            return encode(answer.run())

        return InLane(self.origins, run) if answer.origin else run

    def _destroy(self, _: Request) -> Answer:
        return _DONE


def _caller(request: Request) -> Caller:
    return Caller(request.pid, request.uid, request.gid)


def _opened(opened: Opened, *, reads_only: bool) -> bytes:
    flags = OpenFlag.KEEP_CACHE * opened.keep_cache | OpenFlag.DIRECT_IO * opened.direct_io
    # FLUSH has nothing to do for handles that can't write.
    return OPEN_OUT.pack(opened.handle, flags | OpenFlag.NOFLUSH * reads_only, 0)


def _entry(entry: Entry) -> bytes:
    seconds, nanoseconds = _timeout(entry.entry_timeout)
    if entry.attributes is None:
        return ENTRY_OUT.pack(entry.ino, 0, seconds, 0, nanoseconds, 0, *(0,) * 16)
    attr_seconds, attr_nanoseconds = _timeout(entry.attr_timeout)
    return ENTRY_OUT.pack(
        entry.ino, 0, seconds, attr_seconds, nanoseconds, attr_nanoseconds, *_attributes(entry.attributes)
    )


def _timeout(seconds: float) -> tuple[int, int]:
    return divmod(int(seconds * _SECOND), _SECOND)


def _attributes(attributes: Attributes) -> tuple[int, ...]:
    atime, atime_ns = divmod(attributes.atime_ns, _SECOND)
    mtime, mtime_ns = divmod(attributes.mtime_ns, _SECOND)
    ctime, ctime_ns = divmod(attributes.ctime_ns, _SECOND)
    return (
        attributes.id,
        attributes.size,
        attributes.blocks * (BLOCK // 512),
        atime & _WORD,
        mtime & _WORD,
        ctime & _WORD,
        atime_ns,
        mtime_ns,
        ctime_ns,
        attributes.mode,
        attributes.nlink,
        attributes.uid,
        attributes.gid,
        0,
        BLOCK,
        0,
    )
