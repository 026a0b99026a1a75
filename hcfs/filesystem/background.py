"""What a call that may not wait leaves to do."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

log = logging.getLogger(__name__)

THREADS = 4


class Background:
    """Some threads for work that nobody waits for. Thread-safe."""

    def __init__(self) -> None:
        self.executor: Executor = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="hcfs-close")

    def run(self, work: Callable[[], None]) -> None:
        """Do it soon, in another thread. What it raises is a bug, and is logged."""
        self.executor.submit(_guarded, work)

    def close(self) -> None:
        """Wait for what is under way. Nothing may be given after it."""
        self.executor.shutdown(wait=True)


def _guarded(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:
        log.exception("background work failed unexpectedly")
