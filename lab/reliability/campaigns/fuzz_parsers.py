"""The fuzzing campaign: mutated and constructed inputs for every parser of what is on a device."""

from __future__ import annotations

import random
from collections.abc import Sequence

from lab.reliability import fuzzing
from lab.reliability.campaigns.campaign import Campaign, Counts, parser, report

MEASURED = 20
"""one input in so many is measured for memory"""


def case(chance: random.Random, number: int) -> Counts:
    return _feed(list(fuzzing.PARSERS), chance, number)


def hostile_case(chance: random.Random, number: int) -> Counts:
    """Of the whole images alone whose every field may be a lie."""
    return _feed([name for name in fuzzing.PARSERS if name.startswith("hostile")], chance, number)


def _feed(parsers: list[str], chance: random.Random, number: int) -> Counts:
    name = parsers[number % len(parsers)]
    sample = chance.choice(fuzzing.samples(name))
    # Of a hostile image the bytes are but a seed.
    data = chance.randbytes(8) if name.startswith("hostile") else _changed(sample, chance)
    fuzzing.feed(name, data, memory=chance.randrange(MEASURED) == 0)
    return {"inputs": 1, f"for the {name} parser": 1}


def _changed(sample: bytes, chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(300)) if chance.random() < 0.1 else fuzzing.mutate(sample, chance)


def campaign(*, hostile: bool = False) -> Campaign:
    if hostile:
        return Campaign("fuzz-parsers", "inputs", hostile_case, ("--hostile",))
    return Campaign("fuzz-parsers", "inputs", case)


def main(words: Sequence[str]) -> int:
    given = parser("fuzz-parsers", "Feed the parsers of what is on a device with what can't be there.", "inputs")
    given.add_argument("--hostile", action="store_true", help="whole images alone whose every field may be a lie")
    arguments = given.parse_args(words)
    return report(campaign(hostile=arguments.hostile), arguments)
