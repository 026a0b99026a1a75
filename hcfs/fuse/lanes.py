"""Lanes: how many requests of a kind run at once, and where the others wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from hcfs.fuse.request import Answer, Request


@dataclass(slots=True, eq=False)
class Job:
    """The rest of a request's work: it may wait for I/O."""

    lane: Lane
    request: Request
    run: Callable[[], Answer | Parked]


@dataclass(frozen=True, slots=True)
class InLane:
    """The rest of a request's work, where it is to run."""

    lane: Lane
    run: Callable[[], Answer]


@dataclass(frozen=True, slots=True)
class Parked:
    """Instead of an answer: the job can't be done before something comes, perhaps for minutes. It leaves its lane, and
    no thread waits for it."""

    call_back: Callable[[Callable[[], None]], None]
    """Takes a function, and calls it once, from any thread and perhaps at once, when the job is to be run again. Never
    blocks."""


class Lane:
    """At most `limit` jobs at once, in as many threads; the others wait in their order, each holding its own bytes
    only. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._running = 0
        self._waiting: deque[Job] = deque()
        self._idle = threading.Condition(self._lock)

    def enter(self, job: Job) -> bool:
        """Whether the caller is to run the job now; else a thread that comes to its end in this lane will."""
        with self._lock:
            if self._running < self.limit:
                self._running += 1
                return True
            self._waiting.append(job)
            return False

    def leave(self) -> Job | None:
        """The caller's job is done; the one that it is to run next, if any waits."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._running -= 1
            if not self._running:
                self._idle.notify_all()
            return None

    def wait_until_idle(self) -> None:
        """Block until nothing runs or waits."""
        with self._lock:
            while self._running:
                self._idle.wait()
