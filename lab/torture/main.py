"""hcfs under torture on real mounts: kills at random, remounts with random options, and a known state outside.

`tools/lab torture --help` says how to call it. Exit code 0: nothing was found. 1: a finding; the images, the logs and
the journals are kept, and what reproduces it is printed.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lab.harness.places import Place
from lab.torture.rounds import ENDS, Round, prepare
from lab.torture.store import TREES, StoreUnderTest
from lab.torture.verify import Finding

KEPT = 20
"""Rounds whose journals stay until the next ones are verified."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/lab torture", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seed", default=None, help="what decides everything but timing; random without it")
    parser.add_argument("--seconds", type=float, default=300, help="how long to go on (default: 300)")
    parser.add_argument("--writers", type=int, default=4, help=f"writing processes, at most {TREES} (default: 4)")
    parser.add_argument("--readers", type=int, default=2, help="reading processes (default: 2)")
    parser.add_argument("--store", choices=["roomy", "tight"], help="only rounds on this store (default: on both)")
    parser.add_argument("--end", choices=list(ENDS), help="only rounds that end so (default: in all ways)")
    parser.add_argument("--directory", type=Path, default=None, help="where to work (default: a temporary directory)")
    parser.add_argument("--summary", type=Path, default=None, help="file for a summary in JSON")
    options = parser.parse_args(words)
    options.seed = secrets.token_hex(4) if options.seed is None else options.seed
    if not 1 <= options.writers <= TREES:
        parser.error(f"--writers takes 1 to {TREES}")
    return options


def torture(options: argparse.Namespace, directory: Path, counts: Counter[str]) -> None:
    """Rounds until the time is over, on a store with room and on one without. Raises Finding."""
    chance = random.Random(f"torture {options.seed}")
    ends = time.monotonic() + options.seconds
    stores = [
        StoreUnderTest(directory, "roomy", "768M", evicting=False, chance=chance),
        StoreUnderTest(directory, "tight", "64M", evicting=True, chance=chance),
    ]
    try:
        for store in stores:
            prepare(store)
        number = 0
        while time.monotonic() < ends:
            store = chance.choices(stores, [2, 1])[0]
            if options.store is not None:
                store = next(one for one in stores if one.name == options.store)
            number += 1
            counts["rounds"] += 1
            counts[f"rounds: {store.name}"] += 1
            place = directory / f"round-{number}"
            one = Round(store, number, place, options.seed, (options.writers, options.readers), counts)
            if options.end is not None:
                one.end = options.end
            print(f"round {number}: {store.name}, -o {store.options}, {one.end}", flush=True)
            try:
                one.run()
            except Finding as finding:
                raise Finding(f"round {number} ({store.name}, -o {store.options}, {one.end}): {finding}") from finding
            shutil.rmtree(directory / f"round-{number - KEPT}", ignore_errors=True)
        for store in stores:
            drain(store)
    finally:
        for store in stores:
            store.take_away()


def drain(store: StoreUnderTest) -> None:
    """Nothing is lost: with every name gone, all of the space is free."""
    from lab.torture.verify import settled

    for entry in sorted(store.root.iterdir()):
        shutil.rmtree(entry)
    store.umount()
    store.fsck()
    store.mount_anew()
    settled(
        store.mount.dir, lambda status: status["free_bytes"] == status["capacity_bytes"], "an empty store is all free"
    )
    store.umount()
    store.fsck()


def main(words: Sequence[str]) -> int:
    """Run it and report."""
    options = parse(words)
    again = f"tools/lab torture --seed {options.seed} --seconds {options.seconds:g} --writers {options.writers}"
    again += f" --readers {options.readers}"
    again += "".join(
        f" --{name} {shlex.quote(value)}" for name in ("store", "end") if (value := getattr(options, name)) is not None
    )
    own = None if options.directory else Place.make("hcfs-torture-")
    directory = own.path if own else options.directory
    directory.mkdir(exist_ok=True)
    print(f"seed {options.seed}, {options.seconds:g} s, in {directory}; again: {again}", flush=True)
    counts: Counter[str] = Counter()
    began, finding = time.time(), ""
    try:
        torture(options, directory, counts)
    except Finding as found:
        finding = str(found)
    summary = {
        "seed": options.seed,
        "again": again,
        "date": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "seconds": round(time.time() - began, 1),
        "finding": finding,
        "counts": dict(sorted(counts.items())),
    }
    if options.summary is not None:
        options.summary.write_text(json.dumps(summary, indent=2) + "\n")
    print(json.dumps(summary, indent=2))
    if finding:
        if own:
            own.keep()
        print(f"FOUND: {finding}\nkept: {directory}\nagain: {again}", file=sys.stderr)
        return 1
    if own:
        own.close()
    return 0
