"""The scrub of a mount: one pass at a time, begun, stopped and taken up by command."""

from __future__ import annotations

import errno
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hcfs.errors import HcfsError, UsageError
from hcfs.filesystem.calls import CallError
from hcfs.filesystem.filesystem import Filesystem
from hcfs.filesystem.places.control import Answer, Command
from hcfs.store import ROOT_ID
from hcfs.store.scrub import Damaged, Scrub, ScrubStatistics

log = logging.getLogger(__name__)

RATE = 256 << 20
"""Bytes a second where none is given: a twentieth of what a drive reads, and all of 4 TB in four and a half hours."""

RECORD = b"hcfs.scrub"
"""Internal extended attribute of the root, in which a pass that was stopped waits for the next mount: it costs a
record of the log now and then, and the format knows internal attributes already."""

RECORD_EVERY = 30.0
"""Seconds of scrubbing that a crash may cost."""

BAD_SHOWN = 100
"""Damaged objects that the status names; `.hcfs/quarantine` has all."""

State = Literal["idle", "running", "stopped", "finished"]


@dataclass(frozen=True, slots=True)
class Pass:
    """What is known of a pass: this mount's, and before it of those that it goes on from. Times in seconds since
    1970."""

    position: int = 0
    """Slots below this are done."""
    objects: int = 0
    checked_bytes: int = 0
    damaged: int = 0
    began_at: float | None = None
    finished_at: float | None = None

    def after(self, done: ScrubStatistics) -> Pass:
        """With what was done since."""
        return Pass(
            position=done.position,
            objects=self.objects + done.objects,
            checked_bytes=self.checked_bytes + done.checked_bytes,
            damaged=self.damaged + done.damaged,
            began_at=self.began_at,
            finished_at=time.time() if done.finished else None,
        )


class Scrubbing:
    """The commands and the status are for any thread; `run` is for one, which it blocks for the length of a pass."""

    def __init__(self, filesystem: Filesystem) -> None:
        self._fs = filesystem
        self._store = filesystem.volume.store
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._ended = False
        self._wanted = False
        self._scrub: Scrub | None = None
        self._rate = RATE
        self._bad: deque[dict[str, Any]] = deque(maxlen=BAD_SHOWN)
        self._before = self._recorded()
        """Without what the pass that runs has done."""
        self.on_start: Callable[[], None] | None = None
        """Called, from any thread, when `run` has something to do."""

    # --- commands ----------------------------------------------------------------------------------------------------

    def command(self, command: Command) -> Answer:
        """Words: action, `start` or `stop`; rate, bytes a second; restart, to leave out of account what an
        earlier pass has done. Answered with the status."""
        action, rate = command.words.text("action"), command.words.count("rate")
        restart = command.words.flag("restart")
        command.words.end()
        if rate == 0:
            raise UsageError("a scrub of 0 bytes a second never ends; give a rate such as 256M")
        if action == "start":
            self.start(rate, restart=restart)
        elif action == "stop":
            self.stop()
        else:
            raise UsageError(f"a scrub has no action {action!r}; give start or stop")
        return self.status()

    def start(self, rate: int | None = None, *, restart: bool = False) -> None:
        """Begin a pass, or go on with one that was stopped; of one that runs, change the rate. Memory only. CallError
        when the mount ends."""
        with self._lock:
            if self._ended:
                raise CallError(errno.ESHUTDOWN, "the mount ends, so no scrub is begun")
            if rate is not None or not self._wanted:
                self._rate = rate or RATE
            if self._scrub is not None:
                self._scrub.bytes_per_second = self._rate
            if self._wanted:
                return
            if restart or self._before.finished_at is not None or self._before.began_at is None:
                self._before = Pass(began_at=time.time())
                self._bad.clear()
            self._wanted = True
            self._stop.clear()
        if self.on_start is not None:
            self.on_start()

    def stop(self) -> None:
        """Stop the pass that runs, between two steps of 1 MiB; it can be taken up, also by another mount. Returns at
        once."""
        self._stop.set()

    def end(self) -> None:
        """The mount ends: stop, and begin nothing more."""
        with self._lock:
            self._ended = True
            self._stop.set()

    def status(self) -> dict[str, Any]:
        """Of the pass that runs, else of the last one."""
        with self._lock:
            now, slots = self._before, self._store.census.slots
            running = self._scrub
            if running is not None:
                now = now.after(running.statistics)
            return {
                "state": self._state(now),
                "rate_bytes": self._rate if self._wanted else None,
                "slots": slots,
                **asdict(now),
                "bad": list(self._bad),
            }

    def _state(self, now: Pass) -> State:
        if self._wanted:
            return "running"
        if now.began_at is None:
            return "idle"
        return "stopped" if now.finished_at is None else "finished"

    # --- the pass ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Scrub until the pass is finished or stopped. Blocks."""
        with self._lock:
            if not self._wanted:
                return
            scrub = self._scrub = Scrub(
                self._store,
                self._quarantine,
                bytes_per_second=self._rate,
                start=self._before.position,
                sleep=self._sleep,
            )
        log.info("a scrub goes on at slot %d of %d", self._before.position, self._store.census.slots)
        try:
            self._go_on(scrub)
        finally:
            with self._lock:
                self._before = self._before.after(scrub.statistics)
                self._scrub, self._wanted = None, False
            self._record(self._before)
            log.info("the scrub is %s: %s", self.status()["state"], self._before)

    def _sleep(self, seconds: float) -> None:
        self._stop.wait(seconds)

    def _go_on(self, scrub: Scrub) -> None:
        due = time.monotonic() + RECORD_EVERY

        def stop() -> bool:
            return self._stop.is_set() or time.monotonic() > due

        while not scrub.run(stop).finished and not self._stop.is_set():
            self._record(self._before.after(scrub.statistics))
            due = time.monotonic() + RECORD_EVERY

    def _quarantine(self, damaged: Damaged) -> None:
        bad = {"id": damaged.oid, "path": self._fs.path_of(damaged.oid).decode(errors="backslashreplace")}
        self._fs.parts.damage.quarantine(damaged.oid, damaged.generation, damaged.reason)
        with self._lock:
            self._bad.append({**bad, "granule": damaged.granule, "reason": damaged.reason})

    # --- across mounts -----------------------------------------------------------------------------------------------

    def _record(self, done: Pass) -> None:
        try:
            self._store.set_xattr(ROOT_ID, RECORD, json.dumps(asdict(done)).encode())
        except HcfsError as error:
            # Of a store that is read-only, the position is kept for this mount alone.
            log.info("how far the scrub is can't be kept: %s", error)

    def _recorded(self) -> Pass:
        try:
            value = self._store.get_xattr(ROOT_ID, RECORD)
            if value is None:
                return Pass()
            words = json.loads(value)
            position, objects, checked, damaged = (
                max(0, int(words[name])) for name in ("position", "objects", "checked_bytes", "damaged")
            )
            began, finished = (
                None if words[name] is None else float(words[name]) for name in ("began_at", "finished_at")
            )
            return Pass(position, objects, checked, damaged, began, finished)
        except (HcfsError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return Pass()
