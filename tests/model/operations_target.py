"""What the machine tests through pyfuse3's handlers, without a kernel: a filesystem in memory, whose threads take turns
and whose device lets others run at each call."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyfuse3
import pytest
from model.complaints import listening
from model.history import Recorder
from model.locks import turning
from model.machine import WRITERS
from model.scheduled import Scheduled
from model.system_calls import Calls
from model.tree import NAMESPACES, Seen
from model.turning_device import TurningDevice
from model.walks import Kernel, Process
from mountcore.kernel import Rig
from store.rig import check_space, new_device

from hcfs.cache.victims import Names
from hcfs.device import MemoryDevice
from hcfs.filesystem.versions.housekeeping import UNOPENED_LIFE
from hcfs.filesystem.versions.version import Fate
from hcfs.frontends.operations import Operations
from hcfs.store import ROOT_ID, checkpoints
from hcfs.store.check import check

SIZE = 8 << 20
"""little, so that freed blocks are soon used again"""
CLIENTS = 3
"""processes that make calls beside each other"""
MAX_OBJECTS = 128


class OperationsTarget:
    """System calls of several processes, made of pyfuse3's handlers."""

    def __init__(self) -> None:
        self.scheduled = Scheduled()
        self.turns = self.scheduled.turns
        self.aborted = False
        self._stack = ExitStack()
        self._stack.enter_context(turning(self.turns))
        self.complaints: list[str] = []
        """what hcfs logged of its own bugs"""
        self._stack.enter_context(listening(self.complaints))
        self._stack.enter_context(mock.patch.object(checkpoints, "PAUSE", 0))
        self.processes = [self._process() for _ in range(WRITERS)]
        self.clients = [self._process() for _ in range(CLIENTS)]
        self.recorder: Recorder | None = None
        self.mount(new_device(SIZE, max_objects=MAX_OBJECTS).contents)
        for name in NAMESPACES:
            if name != "kv":  # the rig's
                self.mkdir(name)

    def _process(self) -> Process:
        process = Process()
        self._stack.callback(process.close)
        return process

    def mount(self, contents: bytearray) -> None:
        """Begin anew with what is on a medium."""
        self.turns.dead = False
        self.device = TurningDevice.holding(contents)
        self.device.turns = self.turns
        self.rig = Rig(self.device, sleep=lambda _: self.turns.wait(lambda: True, "sleeping"))
        self.fs, self.store = self.rig.fs, self.rig.store
        self.store.evict = partial(self._evict_noted, self.store.evict)  # type: ignore[method-assign]  # to know when
        self.fs.volume.background.executor.shutdown()
        self.fs.volume.background.executor = self.scheduled  # type: ignore[assignment]  # what it uses of an executor
        for who, client in enumerate(self.clients):
            if client.killed:
                self.replace_client(who)
        self.kernel = Kernel(Operations(self.fs))
        self.me = Calls(self.kernel, SimpleNamespace(pid=os.getpid(), uid=0, gid=0, umask=0o22))
        self.open: dict[int, tuple[Calls, int]] = {}
        self.handles: dict[int, int] = {}

    def _evict_noted(self, evict: Callable[[int], Names | None], oid: int) -> Names | None:
        """Store.evict, which is a step beside those of the processes."""
        begun = 0 if self.recorder is None else self.recorder.now()
        names = evict(oid)
        if self.recorder is not None and names:
            paths = {os.fsdecode(os.path.join(self.store.path_of(parent), name)) for parent, name in names}
            self.recorder.evicted(paths, begun)
        return names

    def run(self, call: Callable[..., Coroutine[Any, Any, Any]], *words: Any) -> Any:
        return self.scheduled.run(partial(call, *words))

    # --- the tree -----------------------------------------------------------------------------------------------------

    def tree(self) -> dict[str, Seen]:
        return dict(self.run(self._tree))

    async def _tree(self) -> dict[str, Seen]:
        seen: dict[str, tuple[str, int, bytes, tuple[tuple[str, bytes], ...], int, int]] = {}

        async def walk(directory: int, prefix: str) -> None:
            for name, entry in (await self.me.list(directory)).items():
                ino, path = entry.st_ino, prefix + name
                kind = {stat.S_IFREG: "f", stat.S_IFDIR: "d", stat.S_IFLNK: "l"}[stat.S_IFMT(entry.st_mode)]
                data = await self.me.load(path) if kind == "f" else b""
                if kind == "l":
                    data = await self.me.ask.readlink(ino, self.me.context)
                xattrs = {} if kind == "l" else await self.me.list_xattrs(ino)
                mode = stat.S_IMODE(entry.st_mode)
                seen[path] = (kind, mode, data, tuple(sorted(xattrs.items())), ino, entry.st_nlink)
                if kind == "d":
                    await walk(ino, path + "/")

        await walk(ROOT_ID, "")
        groups: dict[int, set[str]] = {}
        for path, one in seen.items():
            groups.setdefault(one[4], set()).add(path)
        return {path: (*one[:4], frozenset(groups[one[4]]), one[5]) for path, one in seen.items()}

    # --- calls --------------------------------------------------------------------------------------------------------

    def put(self, path: str, data: bytes) -> None:
        self.run(self.replace, self.me, path, data)

    async def replace(self, calls: Calls, path: str, data: bytes, temporary: str = ".tmp") -> None:
        """By a temporary name, whose rename publishes."""
        handle = await calls.open(path + temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            if data:
                await calls.write(handle, 0, data)
        finally:
            await calls.close(handle)
        try:
            await calls.rename(path + temporary, path)
        except (OSError, pyfuse3.FUSEError):
            await calls.unlink(path + temporary)
            raise

    def mkdir(self, path: str) -> None:
        self.run(self.me.mkdir, path, 0o755)

    def rmdir(self, path: str) -> None:
        self.run(self.me.rmdir, path)

    def unlink(self, path: str) -> None:
        self.run(self.me.unlink, path)

    def rename(self, old: str, new: str) -> None:
        self.run(self.me.rename, old, new)

    def link(self, old: str, new: str) -> None:
        self.run(self.me.link, old, new)

    def symlink(self, target: bytes, path: str) -> None:
        self.run(self.me.symlink, target, path)

    def chmod(self, path: str, mode: int) -> None:
        self.run(self.me.chmod, path, mode)

    def set_xattr(self, path: str, name: str, value: bytes) -> None:
        self.run(self.me.set_xattr, path, name, value)

    def remove_xattr(self, path: str, name: str) -> None:
        self.run(self.me.remove_xattr, path, name)

    # --- writers and readers ------------------------------------------------------------------------------------------

    def begin(self, who: int, path: str, truncate: bool) -> None:
        calls = Calls(self.kernel, self.processes[who].context)
        flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if truncate else 0)
        self.open[who] = calls, self.run(calls.open, path, flags)

    def write(self, who: int, offset: int, data: bytes) -> None:
        calls, handle = self.open[who]
        self.run(calls.write, handle, offset, data)

    def truncate(self, who: int, size: int) -> None:
        calls, handle = self.open[who]
        self.run(calls.resize, handle, size)

    def finish(self, who: int, modified: bool) -> None:
        del modified
        calls, handle = self.open.pop(who)
        self.run(calls.close, handle)

    def abandon(self, who: int) -> None:
        calls, handle = self.open.pop(who)
        self.run(self.die, self.processes[who], calls, handle)
        self.processes[who].close()
        self.processes[who] = self._process()

    async def die(self, process: Process, calls: Calls, handle: int) -> None:
        """A process is killed, and the kernel closes what it had open."""
        process.kill()
        try:
            await calls.close(handle)
        except pyfuse3.FUSEError as error:
            if error.errno != errno.EIO:
                raise
        else:
            raise AssertionError("a killed writer's file is closed as any other")

    def hold(self, number: int, path: str) -> None:
        self.handles[number] = self.run(self.me.open, path, os.O_RDONLY)

    def read_held(self, number: int) -> bytes:
        data: bytes = self.run(self.me.read, self.handles[number], 0, 1 << 20)
        return data

    def release(self, number: int) -> None:
        self.run(self.me.close, self.handles.pop(number))

    # --- administration -----------------------------------------------------------------------------------------------

    def evict(self, namespace: str) -> int:
        oid = self.store.lookup(ROOT_ID, namespace.encode())
        assert oid is not None
        return self.rig.cache.evict_namespace(oid, None).objects

    def replace_client(self, who: int) -> None:
        self.clients[who].close()
        self.clients[who] = self._process()

    def damage(self, path: str, scrub: bool) -> None:
        """A scrub has a machine of its own over a mount; here a reader meets the damage in either case."""
        del scrub
        extents = self.run(self.me.get_xattr, path, "user.hcfs.extents")
        self.device.contents[int(extents.split()[0].partition(b"@")[2]) * 4096] ^= 1
        with pytest.raises(pyfuse3.FUSEError) as refused:
            self.run(self.me.load, path)
        assert refused.value.errno == errno.EIO

    # --- durability ---------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        self.run(self.me.sync)

    def crash(self) -> None:
        self.scheduled.kill()
        self.mount(self.device.contents)
        self._nothing_staged()

    def remount(self) -> None:
        for who in list(self.open):
            self.abandon(who)
        for number in list(self.handles):
            self.release(number)
        self.end()
        self.mount(self.device.contents)
        self._nothing_staged()

    def end(self) -> None:
        """What the daemon does when its main loop has ended."""
        self.fs.parts.housekeeping.publish_closed()
        self.fs.close()
        self.fs.parts.housekeeping.abandon_all()
        self.store.close()
        report = check(MemoryDevice.holding(self.device.contents), data=True)
        assert report.clean, report.problems

    def _nothing_staged(self) -> None:
        assert self.store.state == "ok"
        assert self.store.usage().staged_objects == 0

    def check(self) -> None:
        """Every block has one owner, and nobody has complained."""
        assert not self.complaints
        staged = [version.staged for version in self.fs.parts.versions if version.fate in (Fate.STAGED, Fate.NAMELESS)]
        check_space(self.store, *staged)

    def settle(self) -> None:
        """Versions go that were made for opens which never came. Then only the machine's own writers and readers have
        anything open."""
        self.rig.now += UNOPENED_LIFE + 1
        self.fs.parts.housekeeping.reap()
        assert len(self.fs.handles) == len(self.open) + len(self.handles)
        assert {version.ino for version in self.fs.parts.versions} == {
            calls.inodes[handle] for calls, handle in self.open.values()
        }

    def abort(self) -> None:
        """After a finding: nothing is looked at any more."""
        self.aborted = True
        self.scheduled.kill()
        self._stack.close()

    def close(self) -> None:
        try:
            if not self.aborted:
                self.remount()
        finally:
            self._stack.close()
