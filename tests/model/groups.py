"""A group of programs beside each other, from a seed: run, and held against the model."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from hypothesis import strategies as st
from model.history import Recorder, explain, shown
from model.operations_target import CLIENTS, OperationsTarget
from model.programs import Program
from model.together import KINDS, PATHS, Call
from model.tree import Seen, Tree

ENDS = ("all", "all", "all", "crash", "unmount")
"""All programs come to their end; or the daemon is killed, or the mount ends, in the middle."""

paths = st.sampled_from(PATHS)
calls = st.builds(Call, st.sampled_from(KINDS), paths, paths, st.integers(0, 9999))
scripts = st.lists(st.lists(calls, min_size=1, max_size=3), min_size=2, max_size=CLIENTS)


@dataclass
class Outcome:
    """What came of a group."""

    steps: list[str]
    trace: list[tuple[str, str]]
    found: dict[str, Seen]
    tree: Tree
    """the model of it; the nodes of the one before, where they are still there"""
    stopped: bool
    """the daemon was killed, or the mount ended, before the programs did"""

    def digest(self) -> str:
        """The same for the same schedule and outcome."""
        tree = sorted((path, *seen[:4], sorted(seen[4]), seen[5]) for path, seen in self.found.items())
        return hashlib.blake2b(repr((self.trace, self.steps, tree)).encode(), digest_size=16).hexdigest()


def possible(tree: Tree, scripts: list[list[Call]]) -> list[list[Call]]:
    """Without calls of paths where no file can be."""

    def fits(path: str) -> bool:
        return not tree.walk(path) and (path not in tree.nodes or tree.nodes[path].kind == "f")

    return [[call for call in script if fits(call.path) and fits(call.second)] for script in scripts]


def run(target: OperationsTarget, before: Tree, scripts: list[list[Call]], seed: int, end: str) -> Outcome:
    """AssertionError where the model has no order that explains what was answered and found. After any error, nothing
    can be done with the target any more."""
    try:
        return _run(target, before, scripts, seed, end)
    except BaseException:
        target.abort()
        raise


def _run(target: OperationsTarget, before: Tree, scripts: list[list[Call]], seed: int, end: str) -> Outcome:
    turns = target.turns
    turns.begin(seed)
    recorder = target.recorder = Recorder()
    last = int(10 ** turns.random.uniform(0.5, 3.3))

    def stop() -> bool:
        if end == "all" or len(turns.trace) < last:
            return False
        if end == "crash":
            target.scheduled.kill()
        return True

    programs = [Program(target, recorder, who, script) for who, script in enumerate(scripts)]
    try:
        stopped = target.scheduled.run_together({program.name: program.run for program in programs}, stop)
    finally:
        target.recorder = None
    trace = turns.trace
    durable = None
    if stopped and end == "crash":
        turns.end()
        target.crash()
        durable = recorder.durable
    elif stopped:
        target.end()
        turns.end()
        target.mount(target.device.contents)
    else:
        turns.end()
        target.settle()
        target.check()
    found = target.tree()
    steps = [str(step) for step in recorder.steps]
    tree = explain(before, recorder.steps, found, durable)
    if tree is None:
        history = "\n".join([f"before: {_files(before.seen())}", *steps, f"found: {_files(found)}"])
        raise AssertionError(f"no order of these steps gives what was found:\n{history}")
    return Outcome(steps, trace, found, tree, stopped)


def _files(tree: dict[str, Seen]) -> dict[str, object]:
    return {path: shown(seen[2]) for path, seen in tree.items() if seen[0] == "f"}
