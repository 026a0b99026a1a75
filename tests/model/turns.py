"""Threads that take turns: one runs at a time, and a seed decides which, so that one seed is one schedule.

Worker threads run what pyfuse3's handlers give to threads. They stop at points (before a lock, at a call of the device)
and go on when they are stepped. The loop's thread steps them: between two of its tasks, and at points of its own, where
the machine's scheduler could have let another thread run.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

IDLE = 20_000
"""Steps in a row that nobody could take before it counts as a deadlock: tasks that only wait make none."""


class Deadlock(AssertionError):
    """Nobody can go on."""


class Killed(BaseException):
    """The daemon was killed: what its threads were doing has no end."""


class Worker:
    """A thread that runs while it has the turn."""

    def __init__(self, turns: Turns, name: str, work: Callable[[], Any]) -> None:
        self.name = name
        self.ended, self.killed = False, turns.dead
        self.error: BaseException | None = None
        self.result: Any = None
        self.speed = turns.random.choice((0.05, 0.3, 1.0))
        """How often it takes a turn that it is offered: a fast one overtakes a slow one within its call."""
        self.at = "start"
        self.ready: Callable[[], bool] | None = None
        """While it waits: whether it needn't any more."""
        self._turns, self._work = turns, work
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self._go.acquire()
        self._turns.here.worker = self
        try:
            if self.killed:
                raise Killed
            self.result = self._work()
        except BaseException as error:
            self.error = error
        self.ended, self.at = True, "end"
        self._turns.workers.remove(self)
        self._back.release()

    @property
    def can_go(self) -> bool:
        return not self.ended and (self.killed or self.ready is None or self.ready())

    def step(self) -> None:
        """Let it run to its next point. Called by the loop's thread."""
        if self.at == "start":
            self._thread.start()
        self._go.release()
        self._back.acquire()
        self._turns.note(self.name, self.at)
        if self.ended:
            self._thread.join()

    def stop(self, at: str) -> None:
        """Give the turn back. Called by the worker's own thread; raises Killed."""
        if not self.killed:
            self.at = at
            self._back.release()
            self._go.acquire()
        if self.killed:
            raise Killed


class Turns:
    """Who runs next. Quiet, as at the beginning, everybody runs to the end of what it does."""

    def __init__(self) -> None:
        self.random = random.Random(0)
        self.workers: list[Worker] = []
        self.trace: list[tuple[str, str]] = []
        """(who, where it stopped) of all steps since `begin`."""
        self.here = threading.local()
        self.dead = False
        """The daemon was killed, and with it whoever begins something."""
        self._names = self._idle = 0
        self._often: dict[str, float] = {}
        self._loop = 0.0

    @property
    def quiet(self) -> bool:
        return not self._often

    def begin(self, seed: int) -> None:
        """From now on the seed decides."""
        self.random.seed(seed)
        self.trace, self._names, self.dead = [], 0, False
        self._often = {"lock": self.random.choice((0.0, 0.02, 0.2)), "device": self.random.choice((0.3, 1.0))}
        self._loop = self.random.choice((0.0, 0.01, 0.1))

    def end(self) -> None:
        """Quiet again; all workers have ended."""
        assert not self.workers
        self._often, self.dead = {}, False

    def worker(self) -> Worker | None:
        """Whose thread this is; None: the loop's."""
        return getattr(self.here, "worker", None)

    def note(self, who: str, where: str) -> None:
        self._idle = 0
        if not self.quiet:
            self.trace.append((who, where))

    def start(self, work: Callable[[], Any], what: str) -> Worker:
        """A new worker, which hasn't begun."""
        self._names += 1
        worker = Worker(self, f"{what} {self._names}", work)
        self.workers.append(worker)
        return worker

    def offer(self, worker: Worker) -> None:
        """A turn for a worker, which it takes if it can, and often enough."""
        if worker.can_go:
            if self.random.random() < worker.speed:
                worker.step()
        else:
            self.idle()

    def idle(self) -> None:
        """Somebody could do nothing."""
        self._idle += 1
        if self._idle > IDLE:
            raise Deadlock({worker.name: worker.at for worker in self.workers})

    def point(self, kind: str, what: str) -> None:
        """Somebody else may run here. kind: `lock` or `device`."""
        worker = self.worker()
        if worker is not None:
            if worker.killed:
                raise Killed
            if not self.quiet and self.random.random() < self._often[kind]:
                worker.stop(what)
        elif self.workers and self.random.random() < self._loop:
            for _ in range(self.random.randrange(1, 8)):
                self._step_any()

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Return when `ready()`; others run until then. Deadlock; in a worker, Killed."""
        worker = self.worker()
        if worker is None:
            while not ready():
                if not self._step_any():
                    raise Deadlock({"the loop": what} | {each.name: each.at for each in self.workers})
            return
        while not ready():
            worker.ready = ready
            try:
                worker.stop(what)
            finally:
                worker.ready = None

    def _step_any(self) -> bool:
        able = [worker for worker in self.workers if worker.can_go]
        if able:
            self.random.choice(able).step()
        return bool(able)

    def kill_all(self) -> None:
        """End all workers where they are, and whoever comes until `end`."""
        self.dead = True
        for worker in list(self.workers):
            worker.killed = True
            worker.step()
            assert worker.ended
