"""The damage campaign: flipped bits, noise, zeros, stale and misdirected blocks in every kind of place."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

from lab.reliability import damage
from lab.reliability.campaigns.campaign import Campaign, Counts, parser, report

VICTIMS = 8
"""stores with other histories"""


@lru_cache(maxsize=VICTIMS)
def victim(number: int) -> damage.Victim:
    return damage.make_victim(number)


def case(chance: random.Random, number: int) -> Counts:
    """One damage: every second time a flipped bit, else one of the other kinds."""
    hurt = victim(number // 50 % VICTIMS)
    places = chance.choice(sorted(hurt.by_kind().items()))[1]
    place = chance.choice(places)
    kind = damage.flip if number % 2 else chance.choice(damage.KINDS[1:])
    patches = kind(hurt, place, chance)
    if not damage.lands(hurt, patches):
        return {"without effect": 1}
    place = hurt.place_of(place, patches)
    sure = kind is not damage.stale or place.kind == "granule"
    try:
        damage.judge(hurt, place, patches, chance, whole_truth=sure)
    except Exception as error:
        where = ", ".join(f"{len(data)} bytes at {at}" for at, data in patches)
        error.add_note(f"{kind.__name__} of {where}, in: {place.kind}")
        raise
    return {"damages": 1, "flips": kind is damage.flip, f"in {place.kind}": 1, kind.__name__: 1}


def campaign() -> Campaign:
    return Campaign("damage", "flips", case)


def main(words: Sequence[str]) -> int:
    given = parser("damage", "Damage stores in every kind of place, read, check and repair them.", "flips").parse_args(
        words
    )
    return report(campaign(), given)
