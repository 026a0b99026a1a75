"""What a call that may not wait leaves to do."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

from hcfs.faults import attempt

THREADS = 4


class Background:
    """Some threads for work that nobody waits for. Thread-safe."""

    def __init__(self) -> None:
        self.executor: Executor = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="hcfs-close")

    def run(self, work: Callable[[], None]) -> None:
        """Do it soon, in another thread. What it raises is a bug, and is logged."""
        self.executor.submit(attempt, "background work", work)

    def close(self) -> None:
        """Wait for what is under way. Nothing may be given after it."""
        self.executor.shutdown(wait=True)
