"""Which objects should leave a full cache? Policies compared on traces of LLM serving, by hit ratio and by cost.

The ratio is, for KV requests, the part of all chunks asked for that were there together with every chunk before them
(what a prefix cache can use); for traces of weights alone, the part of the bytes. docs/eviction.md keeps a table and
what was concluded from it. `hcfs` is the code of hcfs/cache itself, with its own idea of which uses are one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.eviction.policies import POLICIES, Farthest, next_uses
from lab.eviction.traces import MADE_UP, Trace, footprint, published, with_scans

DEFAULT = ["fifo", "lru", "sieve", "s3fifo", "2q", "slru-80", "slru-35", "hcfs", "belady"]


@dataclass(frozen=True, slots=True)
class Result:
    """One policy on one trace."""

    trace: str
    cache: float
    """Part of the footprint of what isn't a scan."""
    policy: str
    seed: int
    ratio: float
    cpu_us: float
    """Processor time of one access, the trace's own reading included."""
    bytes_an_object: float


def replay(trace: Trace, capacity: int, policy: str, correlated: float) -> tuple[float, float, float]:
    """(ratio, microseconds of processor time an access, bytes an object)."""
    cache = POLICIES[policy](capacity, correlated)
    following = None
    if isinstance(cache, Farthest):
        following = next_uses([key for request in trace for key in request.keys])
    kv_only = any(not request.weights for request in trace)
    asked = useful = accesses = 0
    access = cache.access
    begin = time.process_time()
    for request in trace:
        at, mib, whole = request.at, request.mib, True
        for key in request.keys:
            if following is not None:
                cache.next_use = following[accesses]  # type: ignore[attr-defined]  # Farthest has it
            accesses += 1
            whole = access(key, mib, at) and whole
            if not (kv_only and request.weights):
                asked += mib
                useful += mib if whole else 0
    return useful / asked, (time.process_time() - begin) / accesses * 1e6, cache.bytes_an_object


def traces(options: argparse.Namespace) -> dict[str, Callable[[int, int], Trace]]:
    """By name; each makes the trace for a seed, and scans of so many MiB where it has any."""

    def made(make: Callable[[int], Trace], reads: int | None) -> Callable[[int, int], Trace]:
        return lambda seed, mib: make(seed) if reads is None or not mib else with_scans(make(seed), seed, mib, reads)

    def read(path: Path) -> Callable[[int], Trace]:
        return lambda _: published(path)

    found: dict[str, Callable[[int, int], Trace]] = {}
    for name, make in {**MADE_UP, **{path.stem: read(path) for path in options.trace}}.items():
        found[name] = made(make, None)
        if name != "models":
            found[f"{name} + scans"] = made(make, 0)
            found[f"{name} + scans read once"] = made(make, 1)
    return {name: found[name] for name in options.only or found}


def run(options: argparse.Namespace) -> list[Result]:
    """All combinations."""
    results = []
    for name, make in traces(options).items():
        for seed in range(options.seed, options.seed + options.seeds):
            whole = footprint(make(seed, 0))
            for part in options.cache:
                capacity = int(whole * part)
                trace = make(seed, int(capacity * options.scan))
                for policy in options.policy:
                    ratio, cpu, size = replay(trace, capacity, policy, options.correlated)
                    results.append(Result(name, part, policy, seed, ratio, cpu, size))
        print(f"{name} done", file=sys.stderr, flush=True)
    return results


def show(results: list[Result], policies: list[str]) -> None:
    """Tables in Markdown: hit ratios in %, then cost."""
    best = [policy for policy in policies if policy != "belady"]
    print("| trace | cache | " + " | ".join(policies) + " |")
    print("|---|---|" + "---|" * len(policies))
    for trace, cache in dict.fromkeys((r.trace, r.cache) for r in results):
        means = {}
        spread = 0.0
        for policy in policies:
            ratios = [100 * r.ratio for r in results if (r.trace, r.cache, r.policy) == (trace, cache, policy)]
            means[policy] = statistics.mean(ratios)
            spread = max(spread, max(ratios) - min(ratios))
        top = max(means[policy] for policy in best)
        cells = [f"**{m:.1f}**" if p in best and m > top - 0.05 else f"{m:.1f}" for p, m in means.items()]
        print(f"| {trace} (±{spread / 2:.1f}) | {cache:.0%} | " + " | ".join(cells) + " |")
    print()
    print("| | " + " | ".join(policies) + " |")
    print("|---|" + "---|" * len(policies))

    def row(title: str, value: Callable[[str], float], form: str) -> None:
        print(f"| {title} | " + " | ".join(format(value(policy), form) for policy in policies) + " |")

    def of(policy: str, field: str) -> list[float]:
        return [getattr(r, field) for r in results if r.policy == policy]

    row("mean ratio, %", lambda p: 100 * statistics.mean(of(p, "ratio")), ".1f")
    row("processor time an access, of lru's", lambda p: sum(of(p, "cpu_us")) / sum(of("lru", "cpu_us")), ".2f")
    row("bytes an object", lambda p: statistics.median(of(p, "bytes_an_object")), ".0f")
    row("the same, most", lambda p: max(of(p, "bytes_an_object")), ".0f")


def main(words: Sequence[str]) -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(
        prog="tools/lab eviction-policies", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--seeds", type=int, default=3, help="how many runs, each with the next seed")
    parser.add_argument("--cache", type=float, nargs="+", default=[0.1, 0.3], help="parts of the footprint")
    parser.add_argument("--scan", type=float, default=0.6, help="size of each scan as a part of the cache")
    parser.add_argument("--correlated", type=float, default=60, help="seconds in which several uses are one")
    parser.add_argument("--policy", nargs="+", choices=POLICIES, default=DEFAULT)
    parser.add_argument("--trace", type=Path, nargs="*", default=[], help="published traces in Mooncake's form")
    parser.add_argument("--only", nargs="+", help="names of traces, as the table has them")
    parser.add_argument("--json", action="store_true", help="every result instead of the tables")
    options = parser.parse_args(words)
    results = run(options)
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=1))
    else:
        show(results, options.policy)
