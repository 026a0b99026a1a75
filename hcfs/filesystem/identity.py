"""Which process a call comes from."""

from __future__ import annotations

from hcfs.filesystem.calls import Caller
from hcfs.host.process import Process, process_of_caller


class CallerIdentity:
    """A caller's process, read from /proc when it is first asked for: most operations never ask."""

    __slots__ = ("_known", "_process", "caller")

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._known = False
        self._process: Process | None = None

    @property
    def process(self) -> Process | None:
        """None when it can't be told."""
        if not self._known:
            self._process, self._known = process_of_caller(self.caller.thread), True
        return self._process
