"""A program that makes places, and ends at a signal as at any other moment: with nothing left of them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from lab.harness import places

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """By a signal. Not a KeyboardInterrupt: after one of those subprocess doesn't wait for a child that it has
    killed."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def run(name: str, main: Callable[[], int | None]) -> NoReturn:
    """Exit with what main returns or raises; at SIGINT, SIGTERM and SIGHUP with 128 and the signal's number, and a
    sentence. In each case what this process owns is taken down before, which no signal interrupts."""
    ending = False

    def handler(number: int, _: FrameType | None) -> None:
        if not ending:
            raise Ended(number)

    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup's, and a shell's in the background
            signal.signal(number, handler)
    try:
        places.begin()
        code: object = main()
    except Ended as signalled:
        ending = True
        print(f"{name} was ended by {signal.Signals(signalled.number).name}", file=sys.stderr, flush=True)
        code = 128 + signalled.number
    except SystemExit as asked:
        ending = True
        code = asked.code
    finally:
        # A signal of this very moment ends the program too, and leaves the rest to the exit's own call.
        ending = True
        places.end()
    sys.exit(code)  # type: ignore[arg-type]  # as SystemExit takes it
