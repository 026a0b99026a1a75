"""What processes do beside each other, and what each of it means in the model."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pyfuse3
import trio
from model.history import Recorder, State
from model.operations_target import OperationsTarget
from model.scheduled import some_rest
from model.system_calls import Calls

PATHS = ("kv/w1", "kv/w2", "kv/d1/a", "kv/d2/a")
"""Few, so that calls meet."""
KINDS = (
    "replace",
    "rewrite",
    "edit",
    "truncate",
    "load",
    "load",
    "unlink",
    "rename",
    "link",
    "evict",
    "sync",
    "commit",
    "die",
)
Refused = (OSError, pyfuse3.FUSEError)


@dataclass(frozen=True)
class Call:
    """One call of a program. second: for calls of two paths. number: what its data, size and manner come of."""

    kind: str
    path: str
    second: str
    number: int


class Process:
    """Makes the calls of one process, and records the steps that they are made of."""

    def __init__(self, target: OperationsTarget, recorder: Recorder, who: int, script: list[Call]) -> None:
        self.target, self.recorder, self.script = target, recorder, script
        self.who, self.name = who, f"process {who}"
        self.calls = Calls(target.kernel, target.clients[who].context, self.rest)
        self.random = target.turns.random
        self.last = False

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            self.nursery = nursery
            for number, call in enumerate(self.script):
                self.last = number == len(self.script) - 1
                await self.rest()
                await getattr(self, f"_{call.kind}")(call, (self.who, number))

    async def rest(self) -> None:
        """Others go first. The end of the mount comes before anything else."""
        await trio.lowlevel.checkpoint_if_cancelled()
        for _ in range(some_rest(self.random)):
            await trio.lowlevel.checkpoint()

    async def _step(self, what: str, apply: Callable[[State, Any], bool], call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call that is one step, and record its answer: what it returned, or the errno. `apply` is given the
        answer, None as long as there is none: then it may be anything."""
        step = self.recorder.begin(f"{self.name} {what}", lambda state: apply(state, step.answer))
        try:
            answer = await call()
        except Refused as error:
            answer = error.errno
        self.recorder.end(step, answer)
        return answer

    # --- reading, and names -------------------------------------------------------------------------------------------

    async def _load(self, call: Call, key: object) -> None:
        """What is read, in pieces and perhaps much later, is what the name meant when it was opened."""
        del key

        def opened(state: State, answer: object) -> bool:
            node = state.tree.nodes.get(call.path)
            if step.ended is None:
                return True
            return answer == errno.ENOENT if node is None else answer == node.data

        step = self.recorder.begin(f"{self.name} loads {call.path}", lambda state: opened(state, step.answer))
        try:
            handle = await self.calls.open(call.path, os.O_RDONLY)
        except Refused as error:
            self.recorder.end(step, error.errno)
            return
        ended = self.recorder.now()
        for _ in range(call.number % 20):
            await self.rest()
        data = b""
        while piece := await self.calls.read(handle, len(data), 40_000 + call.number % 100_000):
            data += piece
            await self.rest()
        await self.calls.close(handle)
        step.ended, step.answer = ended, data

    async def _unlink(self, call: Call, key: object) -> None:
        del key

        def gone(state: State, answer: object) -> bool:
            node = state.tree.nodes.pop(call.path, None)
            return answer == (errno.ENOENT if node is None else None)

        await self._step(f"unlinks {call.path}", gone, lambda: self.calls.unlink(call.path))

    async def _rename(self, call: Call, key: object) -> None:
        del key

        def moved(state: State, answer: object) -> bool:
            if call.path not in state.tree.nodes:
                return answer == errno.ENOENT
            state.tree.rename(call.path, call.second)
            return answer is None

        await self._step(
            f"renames {call.path} to {call.second}", moved, lambda: self.calls.rename(call.path, call.second)
        )

    async def _link(self, call: Call, key: object) -> None:
        """Two steps: the path leads to an inode, and that gets a name, if it has one still."""

        def resolved(state: State, answer: object) -> bool:
            del answer
            state.opened[key] = state.tree.nodes.get(call.path)
            return True

        def linked(state: State, answer: object) -> bool:
            node = state.opened.pop(key)
            if call.second in state.tree.nodes:
                return answer == errno.EEXIST or (node is None and answer == errno.ENOENT)
            if node is None or not state.tree.names_of(node):
                return answer in (errno.ENOENT, errno.ESTALE)
            state.tree.nodes[call.second] = node
            return answer is None

        looking = self.recorder.begin(f"{self.name} resolves {call.path}", lambda state: resolved(state, None))
        linking = self.recorder.begin(
            f"{self.name} links it to {call.second}",
            lambda state: key in state.opened and linked(state, linking.answer),
        )
        try:
            answer = await self.calls.link(call.path, call.second)
        except Refused as error:
            answer = error.errno  # type: ignore[assignment]
        self.recorder.end(linking, answer)
        looking.ended = linking.ended

    # --- administration, and the daemon's own -------------------------------------------------------------------------

    async def _evict(self, call: Call, key: object) -> None:
        """All of a namespace that can go. The target notes what went."""
        del call, key
        await trio.to_thread.run_sync(self.target.evict, "kv")

    async def _sync(self, call: Call, key: object) -> None:
        del call, key
        await self._synced(self.calls.sync)

    async def _synced(self, call: Callable[[], Awaitable[None]]) -> None:
        """What had ended before it began is durable when it has ended."""
        begun = self.recorder.now()
        await call()
        self.recorder.durable = max(self.recorder.durable, begun)

    async def _commit(self, call: Call, key: object) -> None:
        """What the daemon does in the background."""
        del key
        work = self.target.store.checkpoint if call.number % 4 == 0 else self.target.store.commit
        await trio.to_thread.run_sync(work)
