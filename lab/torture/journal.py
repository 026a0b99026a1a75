"""The known state outside the mount: what each writer is about to do, and what a name may therefore hold.

A journal is a file of JSON lines, one a step, each with the time of CLOCK_MONOTONIC in nanoseconds:

    ["intent", t, {path: value or null, ...}, way]   before an operation, fsynced: what the paths will then hold
    ["publish", t]      just before the call that makes it visible (close, rename, link ...): before that it mustn't be
    ["done", t]         that call succeeded: the operation is over
    ["failed", t]       it failed as it may; nothing changed, and the operation is over
    ["sync", t]         before an fsync
    ["synced", t]       it succeeded: what was done before it began is durable
    ["read", t, path, number or null, t0]            what a reader, who began at t0, found

Values are strings: `d` a directory, `l` and a target for a symlink, `f` number`:`mode`:`tag for a file.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

Tree = dict[str, str | None]
FOREVER = 1 << 62


class Journal:
    """One process's notes. Each is a single write, so a killed process leaves no half of one."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, kind: str, *words: object) -> None:
        """Append a line."""
        os.write(self._fd, json.dumps([kind, time.monotonic_ns(), *words]).encode() + b"\n")

    def intend(self, outcome: Tree, way: str) -> None:
        """Append an intent and bring it to the medium."""
        self.note("intent", outcome, way)
        os.fdatasync(self._fd)


@dataclass(slots=True)
class Operation:
    """One change of one writer. Times are FOREVER for what didn't happen."""

    writer: str
    begun: int
    outcome: Tree
    way: str
    published: int = FOREVER
    done: int = FOREVER
    failed: bool = False

    @property
    def prompt(self) -> bool:
        """Whether it is visible to everybody when its call returns: what close publishes follows soon after."""
        return self.way != "close"


@dataclass(slots=True)
class Look:
    """What a reader found."""

    began: int
    ended: int
    path: str
    number: int | None


@dataclass(slots=True)
class History:
    """All journals of a round."""

    operations: list[Operation] = field(default_factory=list)
    syncs: list[tuple[str, int]] = field(default_factory=list)
    """(writer, when the fsync began) of those that succeeded"""
    looks: list[Look] = field(default_factory=list)

    def read(self, journal: Path) -> None:
        """Add a journal. ValueError for a step that belongs to no operation: taken for one of the operation before, a
        failed look at an evicted file would make a content that was published one that mustn't be there."""
        operation: Operation | None = None
        sync = FOREVER
        for kind, when, *rest in _lines(journal):
            if kind == "intent":
                operation = Operation(journal.name, when, *rest)
                self.operations.append(operation)
            elif kind == "sync":
                sync = when
            elif kind == "synced":
                self.syncs.append((journal.name, sync))
            elif kind == "read":
                self.looks.append(Look(rest[2], when, rest[0], rest[1]))
            elif operation is None:
                raise ValueError(f"{journal}: {kind} at {when} belongs to no operation")
            elif kind == "publish":
                operation.published = when
            else:
                if kind == "done":
                    operation.done = when
                else:
                    operation.failed = True
                operation = None

    def by_path(self) -> dict[str, list[Operation]]:
        """Operations that may have changed each path: those that came to the publishing call and weren't refused."""
        found: dict[str, list[Operation]] = {}
        for operation in self.operations:
            if operation.published != FOREVER and not operation.failed:
                for path in operation.outcome:
                    found.setdefault(path, []).append(operation)
        return found

    def allowed(self, before: Tree, durable_from: int | None, evicting: bool) -> dict[str, set[str | None]]:
        """What each path may hold in the end.

        durable_from: None when nothing that was visible can be lost (a clean end); else the daemon was killed, and what
        was done before that time is durable, fsync or not. An outcome is out when another one, begun after it was done,
        is certain to be there.
        """
        last_sync: dict[str, int] = {}
        for writer, began in self.syncs:
            last_sync[writer] = max(began, last_sync.get(writer, 0))
        any_sync = max(last_sync.values(), default=0)

        def certain(operation: Operation) -> bool:
            if operation.done == FOREVER:
                return False
            if durable_from is None:
                return True
            synced = last_sync.get(operation.writer, 0)
            if operation.prompt:
                synced = max(synced, any_sync)
            return operation.done < max(synced, durable_from)

        result: dict[str, set[str | None]] = {}
        changed = self.by_path()
        for path in before.keys() | changed.keys():
            operations = changed.get(path, [])
            firm = max((operation.begun for operation in operations if certain(operation)), default=-1)
            values = {operation.outcome[path] for operation in operations if operation.done >= firm}
            if firm < 0:
                values.add(before.get(path))
            if evicting and any(value is not None and value.startswith("f") for value in values):
                values.add(None)
            result[path] = values
        return result

    def wrong_looks(self, before: Tree, evicting: bool) -> list[Look]:
        """Reads that no order of the operations explains: of what had been replaced before they began, or of what
        nobody wrote."""
        changed = self.by_path()
        wrong = []
        for look in self.looks:
            if evicting and look.number is None:
                continue
            operations = [operation for operation in changed.get(look.path, []) if operation.begun < look.ended]
            over = (operation for operation in operations if operation.prompt and operation.done < look.began)
            firm = max((operation.begun for operation in over), default=-1)
            values = {operation.outcome[look.path] for operation in operations if operation.done >= firm}
            if firm < 0:
                values.add(before.get(look.path))
            if look.number not in {number_of(value) for value in values}:
                wrong.append(look)
        return wrong


def number_of(value: str | None) -> int | None:
    """The number of a file's object; None for what isn't a file."""
    return int(value[1:].partition(":")[0]) if value is not None and value.startswith("f") else None


def _lines(journal: Path) -> Iterator[list]:  # type: ignore[type-arg]
    for line in journal.read_text().splitlines() if journal.exists() else ():
        yield json.loads(line)


def read_history(journals: Iterable[Path]) -> History:
    """The history that the journals tell together."""
    history = History()
    for journal in journals:
        history.read(journal)
    return history
