"""The damage campaign on real mounts: some 250 damages a mount, read in every way in which clients read."""

from __future__ import annotations

import random
from collections.abc import Sequence

from lab.reliability import mounted_damage
from lab.reliability.campaigns.campaign import Campaign, Counts, parser, report


def case(chance: random.Random, number: int) -> Counts:
    """One mount."""
    victim = mounted_damage.victim(number // 8 % mounted_damage.VICTIMS)
    plan = mounted_damage.draw(victim, chance, number)
    try:
        mounted_damage.judge(victim, plan, chance)
    except Exception as error:
        where = ", ".join(f"{len(data)} at {at}" for at, data in plan.patches)
        error.add_note(f"damaged bytes: {where}")
        raise
    return {"mounts": 1, **plan.counts}


def campaign() -> Campaign:
    return Campaign("mounted-damage", "flips", case)


def main(words: Sequence[str]) -> int:
    given = parser("mounted-damage", "Damage mounted stores in many places and read them in every way.", "flips")
    return report(campaign(), given.parse_args(words))
