"""System calls, as the kernel makes pyfuse3's requests of them.

What is cancelled asks for nothing more, as nobody does whose mount has ended.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyfuse3
from model.walks import Walks, refusal
from pyfuse3 import EntryAttributes

from hcfs.store import ROOT_ID

ASKED_AT_ONCE = 1 << 17
"""bytes of a READ"""


class Calls(Walks):
    """Of one process. They raise OSError or FUSEError, each with its errno."""

    # --- files --------------------------------------------------------------------------------------------------------

    async def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        """open(2); a file handle."""
        return int(await self.repeated(lambda attempt: self._open(path, flags, mode, attempt)))

    async def _open(self, path: str, flags: int, mode: int, attempt: int) -> int:
        parent, name = await self.place(path)
        async with self.kernel.alone(parent):
            # A repeated walk finds another inode, so the kernel asks twice.
            for _ in range(attempt + 1):
                entry = await self.ask.lookup(parent, name, self.context)
            if not entry.st_ino:
                if not flags & os.O_CREAT:
                    raise refusal(errno.ENOENT)
                opened, entry = await self.ask.create(parent, name, stat.S_IFREG | mode, flags, self.context)
                self.inodes[opened.fh] = entry.st_ino
                return int(opened.fh)
        if flags & os.O_ACCMODE != os.O_RDONLY and stat.S_ISDIR(entry.st_mode):
            raise refusal(errno.EISDIR)
        if not entry.attr_timeout:
            await self.ask.getattr(entry.st_ino, self.context)
        opened = await self.ask.open(entry.st_ino, flags & ~os.O_CREAT, self.context)
        self.inodes[opened.fh] = entry.st_ino
        return int(opened.fh)

    async def read(self, handle: int, offset: int, length: int) -> bytes:
        """pread(2)."""
        data = b""
        while len(data) < length:
            piece = await self.ask.read(handle, offset + len(data), min(ASKED_AT_ONCE, length - len(data)))
            data += bytes(piece)
            if len(piece) < ASKED_AT_ONCE:
                break
        return data

    async def write(self, handle: int, offset: int, data: bytes) -> None:
        """pwrite(2), all of it."""
        assert await self.ask.write(handle, offset, data) == len(data)

    async def close(self, handle: int) -> None:
        """FLUSH, whose error close(2) returns, and RELEASE, to which there is no answer."""
        try:
            await self.ask.flush(handle)
        except pyfuse3.FUSEError:
            await self.ask.release(handle)
            raise
        await self.ask.release(handle)

    async def resize(self, handle: int, size: int) -> None:
        """ftruncate(2)."""
        attributes, fields = _change("size", size)
        await self.ask.setattr(self.inodes[handle], attributes, fields, handle, self.context)

    async def truncate(self, path: str, size: int) -> None:
        """truncate(2)."""

        async def once(attempt: int) -> None:
            parent, name = await self.place(path)
            async with self.kernel.alone(parent):
                for _ in range(attempt + 1):
                    entry = await self.find(parent, name)
            attributes, fields = _change("size", size)
            await self.ask.setattr(entry.st_ino, attributes, fields, None, self.context)

        await self.repeated(once)

    async def load(self, path: str) -> bytes:
        handle = await self.open(path, os.O_RDONLY)
        try:
            data = await self.read(handle, 0, 1 << 24)
        except pyfuse3.FUSEError:
            await self.close(handle)
            raise
        await self.close(handle)
        return data

    # --- names --------------------------------------------------------------------------------------------------------

    async def mkdir(self, path: str, mode: int) -> None:
        parent, name = await self.place(path)
        async with self.kernel.alone(parent):
            await self.absent(parent, name)
            await self.ask.mkdir(parent, name, stat.S_IFDIR | mode, self.context)

    async def symlink(self, target: bytes, path: str) -> None:
        parent, name = await self.place(path)
        async with self.kernel.alone(parent):
            await self.absent(parent, name)
            await self.ask.symlink(parent, name, target, self.context)

    async def unlink(self, path: str) -> None:
        await self.repeated(lambda _: self._unlink(path))

    async def _unlink(self, path: str) -> None:
        parent, name = await self.place(path)
        async with self.kernel.alone(parent):
            if stat.S_ISDIR((await self.find(parent, name)).st_mode):
                raise refusal(errno.EISDIR)
            await self.ask.unlink(parent, name, self.context)

    async def rmdir(self, path: str) -> None:
        parent, name = await self.place(path)
        async with self.kernel.alone(parent):
            if not stat.S_ISDIR((await self.find(parent, name)).st_mode):
                raise refusal(errno.ENOTDIR)
            await self.ask.rmdir(parent, name, self.context)

    async def rename(self, old: str, new: str) -> None:
        await self.repeated(lambda _: self._rename(old, new))

    async def _rename(self, old: str, new: str) -> None:
        (old_parent, old_name), (parent, name) = await self.place(old), await self.place(new)
        async with self.kernel.alone(old_parent, parent):
            source = await self.find(old_parent, old_name)
            target = await self.ask.lookup(parent, name, self.context)
            if old.startswith(new + "/"):
                raise refusal(errno.ENOTEMPTY)
            if new.startswith(old + "/"):
                raise refusal(errno.EINVAL)
            if target.st_ino and target.st_ino != source.st_ino:
                directories = stat.S_ISDIR(source.st_mode), stat.S_ISDIR(target.st_mode)
                if directories[0] != directories[1]:
                    raise refusal(errno.ENOTDIR if directories[0] else errno.EISDIR)
            if target.st_ino == source.st_ino:
                return
            await self.ask.rename(old_parent, old_name, parent, name, 0, self.context)

    async def link(self, old: str, new: str, resolved: Callable[[], None] = lambda: None) -> None:
        """linkat(2), which links the inode that the old path led to. resolved: called when it is known."""

        async def once(attempt: int) -> None:
            del attempt
            source = await self.resolve(old)
            resolved()
            parent, name = await self.place(new)
            async with self.kernel.alone(parent):
                await self.absent(parent, name)
                if stat.S_ISDIR(source.st_mode):
                    raise refusal(errno.EPERM)
                await self.ask.link(source.st_ino, parent, name, self.context)

        await self.repeated(once)

    # --- attributes ---------------------------------------------------------------------------------------------------

    async def chmod(self, path: str, mode: int) -> None:
        entry = await self.resolve(path)
        attributes, fields = _change("mode", stat.S_IFMT(entry.st_mode) | mode)
        await self.ask.setattr(entry.st_ino, attributes, fields, None, self.context)

    async def set_xattr(self, path: str, name: str, value: bytes) -> None:
        await self.ask.setxattr((await self.resolve(path)).st_ino, os.fsencode(name), value, self.context)

    async def remove_xattr(self, path: str, name: str) -> None:
        await self.ask.removexattr((await self.resolve(path)).st_ino, os.fsencode(name), self.context)

    async def get_xattr(self, path: str, name: str) -> bytes:
        return bytes(await self.ask.getxattr((await self.resolve(path)).st_ino, os.fsencode(name), self.context))

    async def list_xattrs(self, ino: int) -> dict[str, bytes]:
        """A file's own ones."""
        names = [name for name in await self.ask.listxattr(ino, self.context) if not name.startswith(b"user.hcfs.")]
        return {os.fsdecode(name): await self.ask.getxattr(ino, name, self.context) for name in names}

    async def list(self, ino: int) -> dict[str, EntryAttributes]:
        """A directory's entries but for the dots."""
        handle = await self.ask.opendir(ino, self.context)
        found: dict[str, EntryAttributes] = {}
        last = 0

        def reply(token: object, name: bytes, entry: EntryAttributes, position: int) -> bool:
            nonlocal last
            del token
            found[os.fsdecode(name)], last = entry, position
            return True

        with mock.patch.object(pyfuse3, "readdir_reply", reply):
            known = -1
            while len(found) > known:
                known = len(found)
                await self.ask.readdir(handle, last, "a token for reply")
        await self.ask.releasedir(handle)
        return {name: entry for name, entry in found.items() if name not in (".", "..")}

    async def sync(self) -> None:
        """fsync(2) of the root directory."""
        handle = await self.ask.opendir(ROOT_ID, self.context)
        await self.ask.fsyncdir(handle, False)
        await self.ask.releasedir(handle)


def _change(what: str, value: int) -> tuple[EntryAttributes, Any]:
    """What SETATTR carries."""
    attributes = EntryAttributes()
    setattr(attributes, f"st_{what}", value)
    fields = SimpleNamespace(
        **{f"update_{each}": each == what for each in ("mode", "uid", "gid", "size", "atime", "mtime")}
    )
    return attributes, fields
