"""Groups of calls drawn from a seed alone: the long search, and the same schedule again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from model import groups
from model.machine import LENGTHS, content
from model.operations_target import CLIENTS, OperationsTarget
from model.together import KINDS, PATHS, Call
from model.tree import Node, Tree

ROUNDS = 4
"""groups, one after the other, on what the last one left"""


@dataclass
class Life:
    """What came of a seed."""

    digests: list[str] = field(default_factory=list)
    """of each group: schedule, answers and outcome"""
    counts: Counter[str] = field(default_factory=Counter)


class Finding(AssertionError):
    """A promise is broken. Its text has the seed."""


def draw(random: random.Random, kinds: Sequence[str]) -> list[list[Call]]:
    """Programs of two or three processes. Some groups have few kinds of calls, and few paths, which meet more often."""
    kinds = random.sample(kinds, random.choice((2, min(4, len(kinds)), len(kinds))))
    paths = random.sample(PATHS, random.choice((1, 2, len(PATHS))))

    def call() -> Call:
        return Call(random.choice(kinds), random.choice(paths), random.choice(paths), random.randrange(10_000))

    return [[call() for _ in range(random.randint(1, 5))] for _ in range(random.randint(2, CLIENTS))]


def live(seed: int, kinds: Sequence[str] = KINDS) -> Life:
    """A new store, and groups on it. Finding; the same seed is the same life."""
    drawn, life, model = random.Random(seed), Life(), Tree()
    target = OperationsTarget()
    try:
        for path in ("kv/d1", "kv/d2"):
            target.mkdir(path)
            model.nodes[path] = Node("d", 0o755)
        for number, path in enumerate(PATHS[1:]):
            data = content(number, LENGTHS[4 + number % 3])
            target.put(path, data)
            model.nodes[path] = Node("f", 0o644, data)
        for _ in range(ROUNDS):
            target.sync()
            end = drawn.choice(groups.ENDS)
            outcome = groups.run(target, model, draw(drawn, kinds), drawn.getrandbits(32), end)
            model = Tree.of(outcome.found)
            life.digests.append(outcome.digest())
            life.counts.update(
                groups=1, steps=len(outcome.steps), turns=len(outcome.trace), **{end: 1 if outcome.stopped else 0}
            )
    except Exception as error:
        target.abort()
        raise Finding(f"seed {seed}, group {len(life.digests)}: {error}") from error
    target.close()
    return life
