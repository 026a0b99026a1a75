"""What signals a daemon and its guard heed. None but a kill, a stop, or that of a fault leaves a mount that nobody
serves."""

from __future__ import annotations

import signal
from collections import deque
from contextlib import suppress
from types import FrameType

import trio

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGXCPU, signal.SIGPWR)
"""Each unmounts in order: who asks for an end, from a terminal too, and who announces one."""

REOPENING = signal.SIGHUP
"""The log is opened anew, as logrotate wants; a daemon that writes to its terminal loses that, and unmounts."""

IGNORED = (
    signal.SIGUSR1,
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGIO,
    signal.SIGSTKFLT,
    # A mount that is stopped from its terminal would hang whoever uses it, the shell included.
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
)
"""Nothing in hcfs sends them, and their default is to end, or to stop, the process. SIGUSR2 writes the threads' stacks
to the log; SIGCHLD, SIGCONT, SIGURG and SIGWINCH do nothing by themselves; SIGKILL, SIGSTOP, and those of a fault
(SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP) do what they always do."""


def ignore_stray_signals() -> None:
    """From now on, and in child processes. In the main thread."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)


def ignore_all_signals(but: signal.Signals) -> None:
    """For a process that ends with another one, and by nothing else. but: the one that it waits for. In the main
    thread."""
    ignore_stray_signals()
    for number in (*ENDING, REOPENING, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(but, signal.SIG_DFL)


class Signals:
    """The signals that mean something to a mount, from `listen` to the end of the process: those that come before
    somebody asks for the next one wait, and those that come after the last one are without effect, so that nothing cuts
    an end short."""

    def __init__(self) -> None:
        self._numbers: deque[signal.Signals] = deque(maxlen=100)
        self._came: trio.Event | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    def listen(self) -> None:
        """Take note of them from now on. In the main thread."""
        for number in (*ENDING, REOPENING):
            signal.signal(number, self._note)

    def _note(self, number: int, _: FrameType | None) -> None:
        """Runs between any two steps of the main thread."""
        self._numbers.append(signal.Signals(number))
        token, came = self._token, self._came
        if token is not None and came is not None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(came.set)

    async def next(self) -> signal.Signals:
        """The next one. A checkpoint while there is none; cancelled, it loses none."""
        self._token = trio.lowlevel.current_trio_token()
        while True:
            came = self._came = trio.Event()
            if self._numbers:
                return self._numbers.popleft()
            await came.wait()
