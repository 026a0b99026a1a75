"""What all campaigns share: a seed, a budget, progress, and the exact command that repeats a finding."""

from __future__ import annotations

import argparse
import json
import logging
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

Counts = dict[str, int]
Case = Callable[[random.Random, int], Counts]
"""one case of a campaign, from its own source of chance and its number: what was done, by name; names that start with
`most_` are the largest of any case, the others are added up. Raises where a promise is broken."""

FINDINGS_MAX = 10


@dataclass(slots=True)
class Summary:
    """What a campaign did and found."""

    campaign: str
    seed: int
    first: int
    cases: int = 0
    seconds: float = 0.0
    counts: Counts = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def add(self, counts: Counts) -> None:
        for name, count in counts.items():
            old = self.counts.get(name, 0)
            self.counts[name] = max(old, count) if name.startswith("most_") else old + count


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign: the tool's name, what a case is, and which count `--<goal>` limits."""

    name: str
    goal: str
    case: Case
    options: tuple[str, ...] = ()
    """what the command was given beside seed and budget, for the command that repeats a finding"""

    def run(
        self,
        seed: int,
        *,
        goal: int | None = None,
        seconds: float | None = None,
        first: int = 0,
        cases: int | None = None,
    ) -> Iterator[Summary]:
        """Do cases from number `first` on until one of the budgets is used up, yielding the summary so far after each.

        A case that raises is a finding; after FINDINGS_MAX of them the campaign ends."""
        summary = Summary(self.name, seed, first)
        started = time.monotonic()
        number = first
        while cases is None or number < first + cases:
            try:
                summary.add(self.case(random.Random(f"{seed}/{number}"), number))
            except Exception as error:
                what = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
                if not isinstance(error, AssertionError):
                    what += "\n" + traceback.format_exc()
                summary.findings.append(f"{what}\nrepeat: {self.command(seed, number)}")
            summary.cases += 1
            number += 1
            summary.seconds = time.monotonic() - started
            yield summary
            if len(summary.findings) >= FINDINGS_MAX:
                return
            if goal is not None and summary.counts.get(self.goal, 0) >= goal:
                return
            if seconds is not None and summary.seconds >= seconds:
                return

    def finish(
        self,
        seed: int,
        *,
        goal: int | None = None,
        seconds: float | None = None,
        first: int = 0,
        cases: int | None = None,
    ) -> Summary:
        """As `run`, to its end; AssertionError with the findings, if there are any."""
        *_, summary = self.run(seed, goal=goal, seconds=seconds, first=first, cases=cases)
        if summary.findings:
            raise AssertionError("\n\n".join(summary.findings))
        return summary

    def command(self, seed: int, number: int) -> str:
        return " ".join([f"tools/lab {self.name}", *self.options, f"--seed {seed} --first {number} --cases 1"])


def parser(name: str, description: str, goal: str) -> argparse.ArgumentParser:
    """The arguments that all campaigns have."""
    words = argparse.ArgumentParser(prog=f"tools/lab {name}", description=description)
    words.add_argument("--seed", type=int, help="where chance starts (default: another one each time; it is printed)")
    words.add_argument("--seconds", type=float, help="stop after so long")
    words.add_argument(f"--{goal}", dest="goal", type=int, help=f"stop after so many {goal}")
    words.add_argument("--first", type=int, default=0, help="number of the first case")
    words.add_argument("--cases", type=int, help="stop after so many cases")
    words.add_argument("--json", action="store_true", help="print the summary as JSON")
    return words


def report(campaign: Campaign, arguments: argparse.Namespace) -> int:
    """Run a campaign from the command line: progress and findings to stderr, the summary to stdout; 0 if nothing was
    found."""
    logging.disable(logging.CRITICAL)  # the stores' complaints about the damage that was done to them
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().getrandbits(32)
    budgets = (arguments.goal, arguments.seconds, arguments.cases)
    seconds = 60.0 if all(budget is None for budget in budgets) else arguments.seconds
    print(f"{campaign.name}: seed {seed}", file=sys.stderr)
    summary = Summary(campaign.name, seed, arguments.first)
    shown, told = 0, time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    # A campaign that is stopped says what it did so far.
    with suppress(KeyboardInterrupt):
        for summary in campaign.run(
            seed, goal=arguments.goal, seconds=seconds, first=arguments.first, cases=arguments.cases
        ):
            for finding in summary.findings[shown:]:
                print(f"FOUND {finding}", file=sys.stderr)
            shown = len(summary.findings)
            if time.monotonic() - told > 5:
                told = time.monotonic()
                done = summary.counts.get(campaign.goal, 0)
                print(
                    f"{summary.seconds:8.0f} s  {summary.cases} cases  {done} {campaign.goal}"
                    f"  {done / summary.seconds:.0f} a second  {len(summary.findings)} findings",
                    file=sys.stderr,
                )
    document = {
        "campaign": campaign.name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "options": list(campaign.options),
        "first": summary.first,
        "cases": summary.cases,
        "seconds": round(summary.seconds, 1),
        **summary.counts,
        "findings": summary.findings,
    }
    if arguments.json:
        print(json.dumps(document, indent=2))
    else:
        for name, value in document.items():
            print(f"{name:24} {len(summary.findings) if name == 'findings' else value}")
    return 1 if summary.findings else 0
