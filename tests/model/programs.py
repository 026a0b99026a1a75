"""Programs that also write: by a staging name and a rename, in place, in part, by path; to the end, or killed
before."""

from __future__ import annotations

import errno
import os
from itertools import pairwise

import trio
from model.history import State, Step
from model.machine import LENGTHS, content
from model.system_calls import Calls
from model.together import Call, Process, Refused
from model.tree import Node


class Program(Process):
    """The calls that publish something."""

    async def _replace(self, call: Call, key: object) -> None:
        """As LMCache stores: a staging name, which others use too or not, and a rename. Some have the file open still,
        and read and sync it meanwhile."""
        del key
        node = Node("f", 0o644, data_of(call))
        temporary = call.path + (".tmp" if call.number % 2 else f".{self.who}.tmp")
        try:
            handle = await self.calls.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        except Refused as error:
            self._allow_estale(error)
            return
        await self._write_all(handle, 0, node.data)

        def renamed(state: State, answer: object) -> bool:
            state.tree.nodes[call.path] = node
            return answer is None

        async def rename() -> None:
            await self.rest()
            await self._step(f"replaces {call.path}", renamed, lambda: self.calls.rename(temporary, call.path))

        if call.number % 3:
            await self.calls.close(handle)
            await rename()
            return
        await self.calls.ask.flush(handle)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rename)
            nursery.start_soon(self._look_at, handle, node.data)
            nursery.start_soon(self._synced, lambda: self.calls.ask.fsync(handle, False))
        await self.calls.close(handle)

    async def _look_at(self, handle: int, data: bytes) -> None:
        """What somebody has open reads the same, whatever its name becomes."""
        for _ in range(3):
            await self.rest()
            assert await self.calls.read(handle, 0, 1 << 20) == data, "a file that is renamed reads as it did"

    async def _write_all(self, handle: int, offset: int, data: bytes) -> None:
        """As one WRITE, or as several at once: so the kernel sends long ones, and pages of a mapping."""
        if self.random.random() < 0.5 or not data:
            await self.calls.write(handle, offset, data)
            return
        cuts = sorted({0, len(data), *(self.random.randrange(len(data)) for _ in range(2))})
        async with trio.open_nursery() as nursery:
            for start, end in pairwise(cuts):
                nursery.start_soon(self.calls.write, handle, offset + start, data[start:end])

    async def _rewrite(self, call: Call, key: object) -> None:
        await self._open_and_change(call, key, os.O_TRUNC)

    async def _die(self, call: Call, key: object) -> None:
        """Killed before it closes."""
        await self._open_and_change(call, key, os.O_TRUNC)

    async def _edit(self, call: Call, key: object) -> None:
        """A view, of which a part is written."""
        await self._open_and_change(call, key, 0)

    async def _open_and_change(self, call: Call, key: object, truncate: int) -> None:
        data, offset = data_of(call), 0 if truncate else (call.number % 3) * 5000

        def opened(state: State, answer: object) -> bool:
            state.opened[key] = state.tree.nodes.get(call.path)
            return answer is None

        def closed(state: State, answer: object) -> bool:
            if key not in state.opened:
                return False
            base = state.opened.pop(key)
            new = data if truncate else _written(b"" if base is None else base.data, offset, data)
            if base is None or data or (truncate and base.data):
                like = base or Node("f")
                state.tree.nodes[call.path] = Node("f", like.mode, new, like.xattrs)
            return answer is None

        step = self.recorder.begin(f"{self.name} opens {call.path}", lambda state: opened(state, step.answer))
        try:
            handle = await self.calls.open(call.path, os.O_RDWR | os.O_CREAT | truncate)
        except Refused as error:
            self._allow_estale(error, step)
            return
        self.recorder.end(step)
        await self.rest()
        if data:
            await self._write_all(handle, offset, data)
        if call.number % 4 == 0:
            await self._synced(lambda: self.calls.ask.fsync(handle, False))
        await self.rest()
        own = await self.calls.read(handle, 0, 1 << 20)
        assert (own if truncate else own[offset : offset + len(data)]) == data, "a writer doesn't read what it wrote"
        if call.kind == "die":
            self.recorder.drop(step)
            await self._killed(handle)
        elif call.number % 3 or not self.last:
            await self._step(f"closes {call.path}", closed, lambda: self.calls.close(handle))
        else:
            # close(2) returns when FLUSH is answered: RELEASE comes when it likes, or with the end of the mount.
            closing = self.recorder.begin(
                f"{self.name} closes {call.path} late", lambda state: closed(state, closing.answer)
            )
            await self.calls.ask.flush(handle)

            async def release() -> None:
                await self.calls.ask.release(handle)
                self.recorder.end(closing)

            self.nursery.start_soon(release)

    async def _killed(self, handle: int) -> None:
        """Nothing is published. Somebody else goes on in its place."""
        await self.target.die(self.target.clients[self.who], self.calls, handle)
        self.target.replace_client(self.who)
        self.calls = Calls(self.target.kernel, self.target.clients[self.who].context, self.rest)

    def _allow_estale(self, error: Exception, *steps: Step) -> None:
        """An open for writing may fail so where a name changes without pause, and nothing has happened then:
        docs/semantics.md, "Consequences that surprise"."""
        if getattr(error, "errno", None) != errno.ESTALE:
            raise error
        for step in steps:
            self.recorder.drop(step)

    async def _truncate(self, call: Call, key: object) -> None:
        """By path: what is there is taken, and published with another size, within one call."""
        size = LENGTHS[call.number % len(LENGTHS)]
        missing: list[bool] = []

        def taken(state: State, answer: object) -> bool:
            del answer
            state.opened[key] = node = state.tree.nodes.get(call.path)
            return (node is None) == bool(missing) or ending.ended is None

        def published(state: State, answer: object) -> bool:
            node = state.opened.pop(key, None)
            if answer == errno.ENOENT:
                return node is None
            if node is not None:
                state.tree.nodes[call.path] = Node("f", node.mode, node.data[:size].ljust(size, b"\0"), node.xattrs)
            return node is not None and answer is None

        beginning = self.recorder.begin(f"{self.name} takes {call.path}", lambda state: taken(state, None))
        ending = self.recorder.begin(
            f"{self.name} truncates {call.path} to {size}",
            lambda state: key in state.opened and published(state, ending.answer),
        )
        answer = None
        try:
            await self.calls.truncate(call.path, size)
        except Refused as error:
            if error.errno != errno.ENOENT:
                self._allow_estale(error, beginning, ending)
                return
            answer = error.errno
            missing.append(True)
        self.recorder.end(ending, answer)
        beginning.ended = ending.ended


def data_of(call: Call) -> bytes:
    return content(call.number, LENGTHS[call.number % len(LENGTHS)])


def _written(old: bytes, offset: int, data: bytes) -> bytes:
    if not data:
        return old
    new = bytearray(old.ljust(offset, b"\0"))
    new[offset : offset + len(data)] = data
    return bytes(new)
