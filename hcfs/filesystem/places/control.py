"""The control file: commands of whoever administers the mount, one JSON object a write, answered on the same handle."""

from __future__ import annotations

import errno
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hcfs.errors import HcfsError, UsageError
from hcfs.filesystem.calls import Caller, CallError

log = logging.getLogger(__name__)

COMMAND_MAX = 64 << 10
"""Bytes of one command: a namespace's name and some numbers, with room to spare."""

AT_ONCE = 4
"""Commands at once: each keeps one of the threads that write files' data."""

POLL = 0.25
"""Seconds within which a command that waits sees that the mount ends."""

Answer = Mapping[str, Any]

NOBODY = Caller(0, 0xFFFFFFFF, 0xFFFFFFFF)
"""Who commands from within the daemon: no user has this number."""


class Words:
    """What a command says besides its name. Each is asked for once; what nobody asked for is refused by `end`."""

    def __init__(self, words: Mapping[str, Any]) -> None:
        self._words = dict(words)

    def text(self, name: str) -> str:
        """A string that must be there."""
        value = self.optional_text(name)
        if value is None:
            raise UsageError(f"{name!r} is missing; give a string")
        return value

    def optional_text(self, name: str) -> str | None:
        """A string; None when it is left out."""
        value = self._words.pop(name, None)
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{name!r} must be a string")
        return value

    def count(self, name: str) -> int | None:
        """A number from 0 on; None when it is left out."""
        value = self._words.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
            raise UsageError(f"{name!r} must be a whole number from 0 on")
        return value

    def flag(self, name: str) -> bool:
        """A truth value; False when it is left out."""
        value = self._words.pop(name, False)
        if not isinstance(value, bool):
            raise UsageError(f"{name!r} must be true or false")
        return value

    def end(self) -> None:
        """UsageError for what is left."""
        if self._words:
            raise UsageError(f"{', '.join(map(repr, self._words))} isn't known here; leave it out")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a command is in the phase that it is in."""

    phase: str
    done_bytes: int
    total_bytes: int


class Command:
    """A command under way: its words, and whether it is to end early."""

    def __init__(
        self, words: Words, mount_ends: threading.Event, stop: threading.Event | None = None, caller: Caller = NOBODY
    ) -> None:
        """stop: set when it is to end early. caller: who opened the control file."""
        self.words = words
        self.caller = caller
        self._stop = stop or threading.Event()
        self._mount_ends = mount_ends
        self.progress: Callable[[], Progress] | None = None
        """How far it is, asked from any thread; None where it doesn't tell."""

    def stop(self) -> None:
        """Ask it to end early."""
        self._stop.set()

    def stopped(self) -> bool:
        """Whether it is to end before it is done; asked between two pieces of its work."""
        return self._stop.is_set() or self._mount_ends.is_set()

    def wait(self, seconds: float) -> None:
        """Sleep, but no longer than until it is to end."""
        while seconds > 0 and not self.stopped():
            self._stop.wait(min(seconds, POLL))
            seconds -= POLL


class Later:
    """A command that runs in a thread of its own, with its answer when it is done."""

    def __init__(self, control: Control, data: bytes, caller: Caller) -> None:
        self._stop = threading.Event()
        self._answer: bytes | None = None
        self._thread = threading.Thread(
            target=self._run, args=(control, data, caller), name="hcfs-command", daemon=True
        )
        self._thread.start()

    def _run(self, control: Control, data: bytes, caller: Caller) -> None:
        self._answer, _ = control.execute(data, self._stop, caller)

    @property
    def answer(self) -> bytes | None:
        """None while it runs."""
        return self._answer

    def stop(self) -> None:
        """Nobody waits for it any more: it is to end early."""
        self._stop.set()

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join()


class Control:
    """Commands by name, each run in the thread that brings it, or in one of its own; for any number of threads.

    {"command": NAME, ...} is answered with an object of the command's own, or with {"error": SENTENCE, "errno": NAME}.
    With an "id", any string, it can be told to end early: {"command": "stop", "id": ...}. With "later" true it is begun
    only: the kernel lets one write to a file wait for the other, so a command that takes its time would keep others
    from being written, the one that stops it among them.
    """

    def __init__(self, commands: Mapping[str, Callable[[Command], Answer]]) -> None:
        """commands: each takes its words, and `end`s them, before it does anything; what it raises as HcfsError is
        answered, anything else is a bug."""
        self._commands = commands
        self._room = threading.BoundedSemaphore(AT_ONCE)
        self._running: dict[str, Command] = {}
        """Those with an id."""
        self._lock = threading.Lock()
        self._mount_ends = threading.Event()
        self._later: set[Later] = set()

    def begin(self, data: bytes, caller: Caller = NOBODY) -> Later | None:
        """Run a command in a thread of its own, if it asks for that; None if it doesn't, or can't be read. caller: who
        opened the control file."""
        try:
            wanted = _parsed(data).flag("later")
        except HcfsError:
            return None
        if not wanted:
            return None
        with self._lock:
            self._later = {each for each in self._later if each.answer is None}
            later = Later(self, data, caller)
            self._later.add(later)
            return later

    def close(self) -> None:
        """End the commands under way, and wait for them."""
        self.end()
        with self._lock:
            running = list(self._later)
        for each in running:
            each.join()

    def end(self) -> None:
        """The mount ends: commands under way end early, later ones are refused."""
        self._mount_ends.set()

    def under_way(self) -> list[dict[str, Any]]:
        """Id of each command that runs and has one; phase and bytes of those that tell."""
        with self._lock:
            running = list(self._running.items())
        return [{"id": identity, **_told(command)} for identity, command in running]

    def execute(self, data: bytes, stop: threading.Event | None = None, caller: Caller = NOBODY) -> tuple[bytes, int]:
        """Run one command; its answer, and 0 or the errno of its failure. Blocks as long as the command does. stop: set
        when it is to end early. caller: who opened the control file."""
        try:
            return _encoded(self._execute(data, stop, caller)), 0
        except HcfsError as error:
            name = errno.errorcode.get(error.errno, str(error.errno))
            return _encoded({"error": str(error), "errno": name}), error.errno
        except BaseException as error:
            log.exception("a command failed unexpectedly: %r", data[:200])
            what = f"a bug in hcfs ended the command ({type(error).__name__}): the daemon's log has the details"
            return _encoded({"error": what, "errno": "EIO"}), errno.EIO

    def _execute(self, data: bytes, stop: threading.Event | None, caller: Caller) -> Answer:
        words = _parsed(data)
        words.flag("later")
        name, identity = words.text("command"), words.optional_text("id")
        if name == "stop":
            words.end()
            return {"stopped": self._stop(identity)}
        run = self._commands.get(name)
        if run is None:
            raise UsageError(f"there is no command {name!r}; give one of {', '.join([*self._commands, 'stop'])}")
        if self._mount_ends.is_set():
            raise CallError(errno.ESHUTDOWN, "the mount ends, so nothing is begun")
        if not self._room.acquire(blocking=False):
            raise CallError(errno.EBUSY, f"{AT_ONCE} commands are running already; try again when one of them is done")
        command = Command(words, self._mount_ends, stop, caller)
        try:
            self._begin(identity, command)
            try:
                return run(command)
            finally:
                with self._lock:
                    self._running.pop(identity or "", None)
        finally:
            self._room.release()

    def _begin(self, identity: str | None, command: Command) -> None:
        if not identity:
            return
        with self._lock:
            if identity in self._running:
                raise UsageError(f"a command with the id {identity!r} is running already; give another one")
            self._running[identity] = command

    def _stop(self, identity: str | None) -> bool:
        """Whether there was one to stop."""
        running = self._running.get(identity or "")
        if running is not None:
            running.stop()
        return running is not None


def _told(command: Command) -> dict[str, Any]:
    try:
        return asdict(command.progress()) if command.progress is not None else {}
    except HcfsError:  # what it is about is gone by now
        return {}


def _parsed(data: bytes) -> Words:
    if len(data) > COMMAND_MAX:
        raise UsageError(f"a command of {len(data)} bytes is too long: at most {COMMAND_MAX}")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise UsageError('a command is one JSON object, as {"command": "evict", "namespace": "kv"}') from None
    if not isinstance(value, dict):
        raise UsageError("a command is a JSON object, with its name as 'command'")
    return Words(value)


def _encoded(answer: Answer) -> bytes:
    return json.dumps(answer, default=str).encode() + b"\n"
