"""Measuring candidates in turn until the figures are steady, and what the rounds together say."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FEWEST = 5
"""rounds from which on an interval says something"""

Measures = Mapping[str, float]
"""Value by name; the unit is the name's last word."""
Candidate = Callable[[], Measures]


@dataclass(frozen=True)
class Case:
    """Candidates to be compared under the same conditions."""

    title: str
    candidates: Mapping[str, Candidate]
    judged: Sequence[str]
    """measures that must be steady before it ends"""
    base: str = "ext4"
    """the candidate to which ratios are formed; others needn't have its measures"""
    bases: Mapping[str, str] = field(default_factory=dict)
    """other bases, by measure"""
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Limits:
    """When a case has been measured enough."""

    least: int
    """rounds, but for the budget"""
    most: int
    spread: float
    """how far from the median the interval that holds the true one may reach, as a part of it"""


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The narrowest pair of values of the sample, equally far from its ends, between which the true median lies with a
    probability of at least 90 %, whatever the distribution (binomial order statistics); lowest and highest of fewer
    than FEWEST values, which promise less."""
    ordered = sorted(values)
    count, outside = len(ordered), 0
    while 1 - 2 * sum(math.comb(count, k) for k in range(outside + 2)) / 2**count >= 0.9:
        outside += 1
    return ordered[outside], ordered[count - 1 - outside]


def summary(values: Sequence[float]) -> dict[str, Any]:
    low, high = interval(values)
    return {"median": statistics.median(values), "low": low, "high": high, "values": list(values)}


def reach(found: Mapping[str, Any]) -> float:
    """How far the interval reaches from the median, as a part of it."""
    if not found["median"]:
        return 0.0 if found["low"] == found["high"] else math.inf
    low, median, high = (float(found[name]) for name in ("low", "median", "high"))
    return max(high - median, median - low) / abs(median)


def compare(case: Case, limits: Limits, budget_s: float, note: Callable[[str], None]) -> dict[str, Any]:
    """Measure the candidates in turn (A, B, C, A, B, C ...) until the judged ratios are steady, or the rounds or the
    budget are used up; at least one round is made. The result is JSON's."""
    began, longest = time.monotonic(), 0.0
    samples: dict[str, dict[str, list[float]]] = {name: {} for name in case.candidates}
    rounds = 0
    while True:
        start = time.monotonic()
        for name, measure in case.candidates.items():
            for what, value in measure().items():
                samples[name].setdefault(what, []).append(value)
        rounds += 1
        longest = max(longest, time.monotonic() - start)
        result = _result(case, samples, rounds, limits)
        note(f"{case.title}: round {rounds}, {time.monotonic() - began:.0f} s, reach {result['reach']:.1%}")
        if rounds >= limits.least and result["steady"]:
            return {**result, "ended_by": "steady"}
        if rounds >= limits.most:
            return {**result, "ended_by": "rounds"}
        if time.monotonic() - began + longest > budget_s:
            return {**result, "ended_by": "budget"}


def _result(case: Case, samples: dict[str, dict[str, list[float]]], rounds: int, limits: Limits) -> dict[str, Any]:
    table: dict[str, dict[str, Any]] = {}
    reaches = [0.0]
    for name, measures in samples.items():
        for what, values in measures.items():
            entry = summary(values)
            base = case.bases.get(what, case.base)
            others = samples[base].get(what, ())
            if name != base and others and all(others):
                entry["base"] = base
                entry["ratio"] = summary([value / other for value, other in zip(values, others, strict=True)])
                if what in case.judged:
                    reaches.append(reach(entry["ratio"]))
            table.setdefault(what, {})[name] = entry
    worst = max(reaches)
    steady = rounds >= FEWEST and worst <= limits.spread
    return {
        "case": case.title,
        "base": case.base,
        "remarks": case.remarks,
        "rounds": rounds,
        "judged": list(case.judged),
        "reach": worst,
        "steady": steady,
        "measures": table,
    }


def text(result: Mapping[str, Any]) -> str:
    """A case as lines for people."""
    known = f"ratios are known to ±{result['reach']:.0%}" if result["rounds"] >= FEWEST else "how well isn't known"
    state = "steady" if result["steady"] else "NOT STEADY"
    lines = [
        (f"{result['case']}: {result['rounds']} rounds, {state} ({known}; ended by {result['ended_by']})"),
        *(f"  {remark}" for remark in result["remarks"]),
    ]
    width = max(len(name) for candidates in result["measures"].values() for name in candidates)
    for what, candidates in result["measures"].items():
        lines.append(f"  {what}")
        for name, entry in candidates.items():
            shown = f"    {name:{width}s} {_number(entry['median']):>9s}  ({_range(entry)})"
            if "ratio" in entry:
                ratio = entry["ratio"]
                shown += f"   x {entry['base']} {ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"
            lines.append(shown)
    return "\n".join(lines)


def _range(entry: Mapping[str, Any]) -> str:
    return f"{_number(entry['low'])} to {_number(entry['high'])}"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 or not value else f"{value:.3g}"


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
