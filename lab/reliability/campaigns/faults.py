"""The fault campaign: the 1st, 2nd, 3rd ... read, write or flush of a run fails, until none does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

from lab.reliability import workloads
from lab.reliability.campaigns.campaign import Campaign, Counts, parser, report
from lab.reliability.campaigns.crash_states import image, sequences
from lab.reliability.faults import EVER, Fault, run_with_fault

KINDS = tuple(product(("flush", "write", "read"), ("EIO", "ENOSPC", "short"), (1, EVER)))
"""(operation, kind, times); a flush transfers nothing, so it isn't short"""


def case(chance: random.Random, number: int) -> Counts:
    """One workload with faults of one kind: a sequence of one or two operations, or every fourth time a random run."""
    operation, kind, times = KINDS[number % len(KINDS)]
    if operation == "flush" and kind == "short":
        operation = "write"
    steps = workloads.random_steps(chance, 20) if number % 4 == 3 else list(chance.choice(sequences()))
    what = f"{operation} {'once' if times == 1 else 'for ever'}"
    first = 1
    while run_with_fault(image(), steps, number, Fault(operation, first=first, times=times, kind=kind)):
        first += 1
    return {"workloads": 1, "faults": first - 1, what: first - 1, "most_faults_in_one_workload": first - 1}


def campaign() -> Campaign:
    return Campaign("faults", "faults", case)


def main(words: Sequence[str]) -> int:
    given = parser("faults", "Fail the 1st, 2nd, 3rd ... read, write and flush of workloads.", "faults").parse_args(
        words
    )
    return report(campaign(), given)
