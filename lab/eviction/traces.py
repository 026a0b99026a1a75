"""Traces of what LLM serving asks of a cache: made up with a seed, or read from a published file.

A trace is a list of requests in the order of time. A KV request names the chunks of a prompt in order, and profits from
those that are there up to the first that isn't; it stores the rest. A weight request names files that are read whole.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

CHUNK_MIB = 14
"""One KV chunk of 256 tokens."""
SHARD_MIB = 4_900
"""One file of weights."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for at one moment."""

    at: float
    """Seconds since the trace began."""
    keys: tuple[int, ...]
    mib: int
    """Of each of the objects."""
    weights: bool = False


Trace = list[Request]


class Keys:
    """Numbers for objects, none twice."""

    def __init__(self, first: int = 0) -> None:
        self._next = itertools.count(first)

    def take(self, count: int) -> tuple[int, ...]:
        return tuple(itertools.islice(self._next, count))


def _zipf(chance: random.Random, count: int, skew: float) -> Callable[[], int]:
    weights = list(itertools.accumulate(1 / (rank + 1) ** skew for rank in range(count)))
    return lambda: chance.choices(range(count), cum_weights=weights)[0]


def _prompts(chance: random.Random, keys: Keys, count: int) -> list[tuple[int, ...]]:
    return [keys.take(chance.randint(4, 40)) for _ in range(count)]


def prefixes(seed: int, requests: int = 5_000) -> Trace:
    """Shared system prompts and documents of Zipf popularity; after each, a question that never comes again."""
    chance, keys = random.Random(f"prefixes {seed}"), Keys()
    shared = _prompts(chance, keys, 400)
    pick = _zipf(chance, len(shared), 0.9)
    now, trace = 0.0, []
    for _ in range(requests):
        now += chance.expovariate(2)
        trace.append(Request(now, shared[pick()] + keys.take(chance.randint(1, 12)), CHUNK_MIB))
    return trace


def sessions(seed: int, count: int = 1_000) -> Trace:
    """Conversations: each turn reads all before it and adds to it; most end soon; a system prompt begins each."""
    chance, keys = random.Random(f"sessions {seed}"), Keys()
    shared = _prompts(chance, keys, 20)
    pick = _zipf(chance, len(shared), 1.0)
    now, trace = 0.0, []
    for _ in range(count):
        now += chance.expovariate(0.5)
        at, context = now, shared[pick()]
        while True:
            context += keys.take(chance.randint(1, 8))
            trace.append(Request(at, context, CHUNK_MIB))
            if chance.random() < 0.25:
                break
            at += chance.lognormvariate(4.5, 1.0)  # median 90 s
    return sorted(trace, key=lambda request: request.at)


def changing(seed: int, requests: int = 5_000) -> Trace:
    """As `prefixes`, but what is popular changes altogether four times: what a policy protects must come off again."""
    chance, keys = random.Random(f"changing {seed}"), Keys()
    now, trace = 0.0, []
    for _ in range(4):
        shared = _prompts(chance, keys, 200)
        pick = _zipf(chance, len(shared), 0.9)
        for _ in range(requests // 4):
            now += chance.expovariate(2)
            trace.append(Request(now, shared[pick()] + keys.take(chance.randint(1, 12)), CHUNK_MIB))
    return trace


def models(seed: int, loads: int = 120) -> Trace:
    """Weights alone: 24 models of 1 to 12 files of Zipf popularity, each load reading every file of one in order."""
    chance, keys = random.Random(f"models {seed}"), Keys()
    zoo = [keys.take(chance.randint(1, 12)) for _ in range(24)]
    pick = _zipf(chance, len(zoo), 1.0)
    now, trace = 0.0, []
    for _ in range(loads):
        now += chance.expovariate(1 / 600)
        trace += [Request(now + 10 * number, (key,), SHARD_MIB, True) for number, key in enumerate(zoo[pick()])]
    return sorted(trace, key=lambda request: request.at)


def with_scans(trace: Trace, seed: int, mib: int, reads: int = 1, every: float = 900.0) -> Trace:
    """Every so many seconds, files of `mib` together are stored, and each read `reads` times half a minute to a
    quarter of an hour later, and never again."""
    chance, keys = random.Random(f"scans {seed}"), Keys(1 << 40)
    end = trace[-1].at
    scans: Trace = []
    start = every / 2
    while start < end:
        for number, key in enumerate(keys.take(max(1, mib // SHARD_MIB))):
            at = start + 5 * number
            scans.append(Request(at, (key,), SHARD_MIB, True))
            for _ in range(reads):
                at += chance.uniform(30, 900)
                scans.append(Request(at, (key,), SHARD_MIB, True))
        start += every
    scans.sort(key=lambda request: request.at)
    return list(heapq.merge(trace, scans, key=lambda request: request.at))


def published(path: Path, mib: int = 2 * CHUNK_MIB) -> Trace:
    """A file in Mooncake's form, a JSON object a line: timestamp (ms), hash_ids (one a 512 tokens)."""

    def requests() -> Iterator[Request]:
        for line in path.read_text().splitlines():
            request = json.loads(line)
            yield Request(request["timestamp"] / 1000, tuple(request["hash_ids"]), mib)

    return sorted(requests(), key=lambda request: request.at)


def footprint(trace: Trace) -> int:
    """MiB of all different objects of KV requests; where there are none, of all."""
    kv = {key: request.mib for request in trace if not request.weights for key in request.keys}
    return sum((kv or {key: request.mib for request in trace for key in request.keys}).values())


MADE_UP: dict[str, Callable[[int], Trace]] = {
    "prefixes": prefixes,
    "sessions": sessions,
    "changing": changing,
    "models": models,
}
