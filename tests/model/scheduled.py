"""trio, and the threads that it gives work to, with a scheduler that follows a seed."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import trio
from model.turns import IDLE, Deadlock, Killed, Turns, Worker
from trio._core import _run


class _Steps(trio.abc.Instrument):
    """Notes which task has its turn."""

    def __init__(self, turns: Turns, names: Collection[str]) -> None:
        self._turns, self._names = turns, names

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name in self._names:
            self._turns.trace.append((task.name, "task"))


class Scheduled:
    """Runs what is async to its end, one call after the other. Between `turns.begin` and `turns.end` the seed says in
    which order the tasks run and how far each worker gets; else a call has nobody beside it."""

    def __init__(self) -> None:
        self.turns = Turns()
        self._background: list[Worker] = []

    # --- what hcfs is given instead of threads ------------------------------------------------------------------------

    async def run_sync(
        self,
        work: Callable[..., Any],
        *args: Any,
        limiter: trio.CapacityLimiter | None = None,
    ) -> Any:
        """trio.to_thread.run_sync: it can be cancelled until the work begins, as there."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.turns.quiet:
            return work(*args)
        who = object()
        limiter = limiter or trio.to_thread.current_default_thread_limiter()
        await limiter.acquire_on_behalf_of(who)
        try:
            worker = self.turns.start(partial(work, *args), "worker")
            with trio.CancelScope(shield=True):
                while not worker.ended:
                    self.turns.offer(worker)
                    await trio.lowlevel.checkpoint()
        finally:
            limiter.release_on_behalf_of(who)
        if isinstance(worker.error, Killed):
            await trio.sleep_forever()
        if worker.error is not None:
            raise worker.error
        return worker.result

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[None]:
        """concurrent.futures.Executor.submit, as far as hcfs uses it."""
        self._background.append(self.turns.start(partial(work, *args), "background"))
        return Future()

    def shutdown(self, wait: bool = True) -> None:
        """concurrent.futures.Executor.shutdown."""
        assert wait
        while self._background:
            self._run_background()

    def _run_background(self) -> None:
        for worker in self._background:
            if worker.can_go:
                worker.step()
            if worker.error is not None:
                raise worker.error
        self._background = [worker for worker in self._background if not worker.ended]

    # --- running ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """trio's scheduler deterministic, and its threads ours."""
        state = _run._r.getstate()
        _run._r.seed(self.turns.random.getrandbits(64))
        try:
            with (
                mock.patch.object(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
                mock.patch.object(trio.to_thread, "run_sync", self.run_sync),
            ):
                yield
        finally:
            _run._r.setstate(state)

    def kill(self) -> None:
        """End the daemon where it is."""
        self.turns.kill_all()
        self._background.clear()

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """One call, and what it leaves to the background."""
        with self._in_place():
            answer = trio.run(_outcome, work)
        self.shutdown()
        return answer

    def run_together(self, tasks: dict[str, Callable[[], Awaitable[None]]], stop: Callable[[], bool]) -> bool:
        """All tasks beside each other, until they have ended or `stop()`, which is asked again and again: they are
        cancelled then where they are. Whether it was so."""
        steps = _Steps(self.turns, tasks)

        async def main() -> bool:
            spins, known = 0, 0
            async with trio.open_nursery() as nursery:
                left = set(tasks)

                async def one(name: str) -> None:
                    await tasks[name]()
                    left.discard(name)

                for name in tasks:
                    nursery.start_soon(one, name, name=name)
                while left or self._background:
                    if stop():
                        nursery.cancel_scope.cancel()
                        return True
                    for worker in self._background:
                        self.turns.offer(worker)
                    self._background = [worker for worker in self._background if not worker.ended]
                    await trio.lowlevel.checkpoint()
                    spins, known = (spins + 1, known) if len(self.turns.trace) == known else (0, len(self.turns.trace))
                    if spins > IDLE:
                        raise Deadlock(f"{left} wait for each other")
            return False

        with self._in_place():
            return trio.run(main, instruments=[steps])


async def _outcome(work: Callable[[], Awaitable[Any]]) -> Any:
    return await work()


def some_rest(random: random.Random) -> int:
    """How many turns somebody lets pass: mostly none, sometimes many."""
    return random.choice((0, 0, 0, 0, 1, 1, 3, 20))
