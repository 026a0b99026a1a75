"""The locks of hcfs, for threads that take turns: whoever waits for one lets the others run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from model.turns import Turns

from hcfs.cache import eviction


class _Lock:
    """threading.Lock, and with `again` threading.RLock."""

    def __init__(self, turns: Turns, name: str, *, again: bool) -> None:
        self._turns, self._name, self._again = turns, name, again
        self._owner: object = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        del timeout  # nobody in hcfs gives up waiting for a lock
        me = self._turns.worker() or self._turns
        if self._again and self._owner is me:
            self._count += 1
            return True
        self._turns.point("lock", self._name)
        if self._count:
            if not blocking:
                return False
            self._turns.wait(lambda: not self._count, f"waiting for {self._name}")
        self._owner, self._count = me, 1
        return True

    def release(self) -> None:
        worker = self._turns.worker()
        if worker is not None and worker.killed:
            return  # it may have been killed while it waited for this very lock
        assert self._count
        self._count -= 1
        if not self._count:
            self._owner = None

    def locked(self) -> bool:
        return bool(self._count)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def give_up(self) -> int:
        """Release it altogether; how often it was held."""
        count, self._count, self._owner = self._count, 0, None
        return count

    def take_again(self, count: int) -> None:
        """Wait for it, and hold it as often as before."""
        self._turns.wait(lambda: not self._count, f"waiting for {self._name}")
        self._owner, self._count = self._turns.worker() or self._turns, count


class _Condition:
    """threading.Condition."""

    def __init__(self, turns: Turns, lock: _Lock) -> None:
        self._turns, self._lock = turns, lock
        self._waiting: list[list[bool]] = []

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__()

    def wait(self, timeout: float | None = None) -> bool:
        """With a timeout, it may have passed whenever it is asked."""
        told = [False]
        self._waiting.append(told)
        count = self._lock.give_up()
        over = (lambda: True) if timeout is not None else (lambda: told[0])
        if timeout is not None and (worker := self._turns.worker()) is not None:
            worker.stop("waiting for a while")
        self._turns.wait(over, "waiting to be told")
        self._lock.take_again(count)
        if told in self._waiting:
            self._waiting.remove(told)
        return told[0]

    def notify(self, n: int = 1) -> None:
        for told in self._waiting[:n]:
            told[0] = True
        del self._waiting[:n]

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class _Event:
    """threading.Event."""

    def __init__(self, turns: Turns) -> None:
        self._turns, self._set = turns, False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self) -> bool:
        self._turns.wait(lambda: self._set, "waiting for an event")
        return True


class _Semaphore:
    """threading.Semaphore."""

    def __init__(self, turns: Turns, value: int) -> None:
        self._turns, self._value = turns, value

    def acquire(self, blocking: bool = True) -> bool:
        if not self._value:
            if not blocking:
                return False
            self._turns.wait(lambda: self._value > 0, "waiting for a semaphore")
        self._value -= 1
        return True

    def release(self) -> None:
        self._value += 1


class _Threading:
    """The module, with these locks in it. A lock's name is where it was made."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)

    def Lock(self) -> _Lock:
        return _Lock(self._turns, _where(), again=False)

    def RLock(self) -> _Lock:
        return _Lock(self._turns, _where(), again=True)

    def Condition(self, lock: _Lock) -> _Condition:
        return _Condition(self._turns, lock)

    def Event(self) -> _Event:
        return _Event(self._turns)

    def Semaphore(self, value: int) -> _Semaphore:
        return _Semaphore(self._turns, value)


def _where() -> str:
    code = sys._getframe(2)
    return f"{code.f_globals['__name__']}:{code.f_lineno}"


@contextmanager
def turning(turns: Turns) -> Iterator[None]:
    """Whatever hcfs makes meanwhile has locks of this kind."""
    own = _Threading(turns)

    class Round(eviction._Round):
        """Its event's class is fixed when the dataclass is made."""

        __slots__ = ()

        def __init__(self) -> None:
            super().__init__(done=own.Event())  # type: ignore[arg-type]  # stands for threading.Event

    names: dict[str, tuple[object, Callable[..., object]]] = {
        name: (getattr(threading, name), getattr(own, name)) for name in ("Lock", "RLock", "Condition", "Event")
    }
    names["threading"] = threading, own  # type: ignore[assignment]  # the module itself
    with mock.patch.object(eviction, "_Round", Round):
        patches = [
            mock.patch.object(module, name, new)
            for key, module in list(sys.modules.items())
            if key.startswith("hcfs.")
            for name, (old, new) in names.items()
            if getattr(module, name, None) is old
        ]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in reversed(patches):
                patch.stop()
