"""The fuzzing campaign: mutated and constructed inputs for every parser of what is on a device."""

from __future__ import annotations

import random
import sys

from harness import fuzzing
from harness.campaigns.campaign import Campaign, Counts, main, parser

MEASURED = 20
"""one input in so many is measured for memory"""


def case(chance: random.Random, number: int) -> Counts:
    name = list(fuzzing.PARSERS)[number % len(fuzzing.PARSERS)]
    data = chance.choice(fuzzing.samples(name))
    data = chance.randbytes(chance.randrange(300)) if chance.random() < 0.1 else fuzzing.mutate(data, chance)
    fuzzing.feed(name, data, memory=chance.randrange(MEASURED) == 0)
    return {"inputs": 1, f"for the {name} parser": 1}


def campaign() -> Campaign:
    return Campaign("fuzz-parsers", "inputs", case)


if __name__ == "__main__":
    given = parser("fuzz-parsers", "Feed the parsers of what is on a device with what can't be there.", "inputs")
    sys.exit(main(campaign(), given.parse_args()))
