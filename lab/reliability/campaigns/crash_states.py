"""The crash campaign: record a workload, recover every state that a crash can leave of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache

from lab.reliability import crash, workloads
from lab.reliability.campaigns.campaign import Campaign, Counts, parser, report
from lab.reliability.crash import COMMIT
from lab.reliability.workloads import SINGLE_STEPS, Step


@cache
def image() -> bytes:
    return workloads.base_image()


@cache
def sequences() -> tuple[tuple[Step, ...], ...]:
    """All sequences of one and two operations; those of two also with a commit between them."""
    single = [(step,) for step in SINGLE_STEPS]
    pairs = [(one, two) for one in SINGLE_STEPS for two in SINGLE_STEPS]
    apart = [(one, COMMIT, two) for one, two in pairs if COMMIT not in (one, two)]
    return (*single, *pairs, *apart)


def sequence_case(chance: random.Random, number: int, states: int) -> Counts:
    """Sequence `number`, in an order that takes from all kinds early."""
    todo = sequences()
    # 1009 is prime, so that each sequence comes once in a round.
    steps = todo[number * 1009 % len(todo)]
    run = crash.record(image(), steps, number)
    return asdict(crash.explore(run, chance, states)) | {"rounds": number % len(todo) == len(todo) - 1}


def random_case(chance: random.Random, number: int, states: int) -> Counts:
    """A long random run, some of whose crash states are lived on in, up to three lives deep."""
    steps = workloads.random_steps(chance, chance.choice((20, 60, 200, 400)))
    run = crash.record(image(), steps, number, meanwhile=workloads.other_steps(chance, len(steps) // 4))
    return asdict(crash.explore(run, chance, states, lives=3))


def campaign(workload: str, states: int = 60) -> Campaign:
    case = sequence_case if workload == "sequences" else random_case
    options = (f"--workload {workload}", f"--states-an-epoch {states}")
    return Campaign("crash-states", "states", lambda chance, number: case(chance, number, states), options)


def main(words: Sequence[str]) -> int:
    options = parser("crash-states", "Recover stores from every state that a crash can leave.", "states")
    options.add_argument(
        *("--workload", "-w"),
        choices=("sequences", "random"),
        default="sequences",
        help="all sequences of one and two operations, or long random runs (default: sequences)",
    )
    options.add_argument(
        "--states-an-epoch", type=int, default=60, help="most crash states of the writes between two flushes (60)"
    )
    given = options.parse_args(words)
    return report(campaign(given.workload, given.states_an_epoch), given)
