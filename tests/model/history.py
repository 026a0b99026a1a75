"""Whether what calls beside each other answered, and what they left, is what some order of them would have given."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from model.tree import Node, Seen, Tree

Key = tuple[frozenset[tuple[str, str, bytes, int, int]], tuple[object, ...]]


@dataclass(eq=False)
class State:
    """The model in the middle of a history."""

    tree: Tree
    opened: dict[object, Any] = field(default_factory=dict)
    """what steps leave for later ones of the same call: a writer's view, an inode"""

    def copy(self) -> State:
        tree = Tree()
        tree.nodes = dict(self.tree.nodes)
        return State(tree, dict(self.opened))

    def key(self) -> Key:
        first: dict[int, str] = {}
        for path in sorted(self.tree.nodes):
            first.setdefault(id(self.tree.nodes[path]), path)
        numbers = {path: index for index, path in enumerate(sorted(self.tree.nodes))}
        nodes = frozenset(
            (path, node.kind, node.data, node.mode, numbers[first[id(node)]]) for path, node in self.tree.nodes.items()
        )
        return nodes, tuple(sorted((repr(name), _shown(value)) for name, value in self.opened.items()))


def _shown(value: object) -> str:
    return f"{value.mode} {zlib.crc32(value.data)}" if isinstance(value, Node) else repr(value)


@dataclass(eq=False)
class Step:
    """What happened at one moment between two others."""

    what: str
    apply: Callable[[State], bool]
    """Does to the state what the step does; False when the answer that was seen can't come of it."""
    begun: int
    ended: int | None = None
    """None: it was still under way at the end, and has happened or not."""
    answer: Any = None

    def __str__(self) -> str:
        return f"{self.begun:4} to {self.ended or '-':4} {self.what}: {shown(self.answer)}"


def shown(value: object) -> object:
    """Contents by their length and a checksum."""
    return f"{len(value)} bytes {zlib.crc32(value):x}" if isinstance(value, bytes) else value


class Recorder:
    """Notes steps as they come. Its clock counts what is noted."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.durable = 0
        """when the last fsync that has ended began"""
        self._now = 0

    def now(self) -> int:
        self._now += 1
        return self._now

    def begin(self, what: str, apply: Callable[[State], bool]) -> Step:
        step = Step(what, apply, self.now())
        self.steps.append(step)
        return step

    def end(self, step: Step, answer: Any = None) -> None:
        step.ended, step.answer = self.now(), answer

    def evicted(self, paths: set[str], begun: int) -> None:
        """hcfs itself took a file away, with all its names, at some moment since then."""

        def gone(state: State) -> bool:
            node = state.tree.nodes.get(min(paths))
            if node is None or set(state.tree.names_of(node)) != paths:
                return False
            state.tree.drop(node)
            return True

        step = Step("evicted", gone, begun)
        self.steps.append(step)
        self.end(step, sorted(paths))

    def drop(self, step: Step) -> None:
        """It came to nothing, and nobody can tell when."""
        self.steps.remove(step)


def explain(before: Tree, steps: list[Step], found: dict[str, Seen], durable: int | None = None) -> Tree | None:
    """The tree after an order of the steps that explains all answers and leaves `found`; None when there is none.

    An order keeps what ended before something else began. Steps under way may be left out. durable: `found` is what a
    crash left; it is a moment of the order, after all that had ended by then.
    """
    seen: set[tuple[int, bool, Key]] = set()
    whole = sum(1 << index for index, step in enumerate(steps) if step.ended is not None)
    lasting = sum(
        1 << index
        for index, step in enumerate(steps)
        if durable is not None and step.ended is not None and step.ended < durable
    )
    start = State(before).copy()
    todo: list[tuple[int, State, Tree | None]] = [(0, start, None)]
    while todo:
        done, state, met = todo.pop()
        if done & lasting == lasting and state.tree.seen() == found:
            met = state.tree
        if done & whole == whole and met is not None and (durable is not None or met is state.tree):
            return met
        if durable is None:
            met = None
        latest = min(
            (step.ended for index, step in enumerate(steps) if not done >> index & 1 and step.ended is not None),
            default=None,
        )
        for index, step in enumerate(steps):
            if done >> index & 1 or (latest is not None and step.begun > latest):
                continue
            after = state.copy()
            if not step.apply(after):
                continue
            key = done | 1 << index, met is not None, after.key()
            if key not in seen:
                seen.add(key)
                todo.append((done | 1 << index, after, met))
    return None
