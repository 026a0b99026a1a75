"""Damage on the medium under a real mount, met in every way in which clients read: an error and a miss, never bytes.
The small budget of `tools/lab mounted-damage`."""

from __future__ import annotations

import os
import random

import pytest

from lab.reliability import mounted_damage
from lab.reliability.campaigns import mounted_damage as campaign

ROUNDS = int(os.environ.get("HCFS_DAMAGE_ROUNDS", "1"))
SEED = int(os.environ.get("HCFS_DAMAGE_SEED", "1"))


@pytest.mark.timeout(180 + 60 * ROUNDS)
def test_damage_is_an_error_and_then_a_miss() -> None:
    summary = campaign.campaign().finish(SEED, cases=ROUNDS)
    assert summary.counts["flips"] >= 150 * ROUNDS
    assert all(summary.counts[f"by {way}"] for way in mounted_damage.WAYS)


def test_it_sees_what_is_not_refused() -> None:
    """The campaign itself is checked: an object that it takes for damaged, and that is read."""
    victim, chance = mounted_damage.victim(0), random.Random(SEED)
    plan = mounted_damage.Plan(hurt={b"kv/d1/old7": 0}, objects=1)
    with pytest.raises(AssertionError, match="old7"):
        mounted_damage.judge(victim, plan, chance)
