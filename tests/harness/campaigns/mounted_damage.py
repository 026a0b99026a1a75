"""The damage campaign on real mounts: some 250 damages a mount, read in every way in which clients read."""

from __future__ import annotations

import random
import sys

from harness import mounted_damage
from harness.campaigns.campaign import Campaign, Counts, main, parser


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
    return Campaign("damage", "flips", case, ("--mounted",))


if __name__ == "__main__":
    given = parser("damage --mounted", "Damage mounted stores in many places and read them in every way.", "flips")
    sys.exit(main(campaign(), given.parse_args()))
