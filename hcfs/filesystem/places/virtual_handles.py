"""Open files of the virtual tree."""

from __future__ import annotations

import errno

from hcfs.filesystem.calls import Caller, CallError
from hcfs.filesystem.places.control import NOBODY, Control, Later
from hcfs.filesystem.places.virtual_tree import NAME


class VirtualHandle:
    """A Handle: a virtual file, as it was when it was opened."""

    __slots__ = ("_content",)

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self, offset: int, length: int) -> bytes:
        return self._content[offset : offset + length]

    def write(self, offset: int, data: bytes | memoryview, *, drops_privileges: bool) -> int:
        """EBADF: it is open for reading only."""
        raise CallError(errno.EBADF)

    def flush(self) -> None:
        """Nothing was written through it."""

    def sync(self) -> None:
        """The same."""

    def release(self) -> None:
        """Nothing is kept for it."""

    def path(self) -> bytes:
        return NAME


class ControlHandle:
    """A Handle: the control file, opened by an administrator. What is written is a command, what is read its answer.
    Offsets don't count, so that a shell's `exec 3<>` and `cat <&3` do."""

    __slots__ = ("_answer", "_caller", "_control", "_later")

    def __init__(self, control: Control, caller: Caller = NOBODY) -> None:
        """caller: who opened it."""
        self._caller = caller
        self._control = control
        self._answer = b""
        self._later: Later | None = None

    def write(self, offset: int, data: bytes | memoryview, *, drops_privileges: bool) -> int:
        """Run a command, or begin it, and keep its answer in place of what is left of the last one's. Blocks. Raises
        CallError with the command's errno, when the answer says why; EBUSY while one that was begun isn't done."""
        if self._later is not None and self._later.answer is None:
            raise CallError(errno.EBUSY)
        command = bytes(data)
        self._answer = b""
        self._later = self._control.begin(command, self._caller)
        if self._later is None:
            self._answer, code = self._control.execute(command, None, self._caller)
            if code:
                raise CallError(code)
        return len(command)

    def read(self, offset: int, length: int) -> bytes:
        """What comes next of the answer; nothing at its end. EAGAIN while the command isn't done."""
        if self._later is not None:
            answer = self._later.answer
            if answer is None:
                raise CallError(errno.EAGAIN)
            self._answer, self._later = answer, None
        part, self._answer = self._answer[:length], self._answer[length:]
        return part

    def flush(self) -> None:
        """A command was done, or begun, when its write returned."""

    def sync(self) -> None:
        """The same."""

    def release(self) -> None:
        """A command whose answer nobody can read any more is to end early."""
        if self._later is not None:
            self._later.stop()

    def path(self) -> bytes:
        return NAME
