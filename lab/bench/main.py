"""Benchmarks of hcfs beside what it competes with, interleaved on the same backing.

Only ratios within one run mean anything: machines differ, and neighbours make them noisy. docs/benchmarks.md describes
the method. Run as root: it makes loop devices and mounts, and takes them down also when it fails or is interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence

from lab.bench.error import BenchError

MEASUREMENTS = "lab.bench.measurements"
COMMANDS = {
    "l2": "LMCache's `lmcache bench l2`: the device's limit, ext4, raw_block, hcfs",
    "small": "stores and loads of small objects a second",
    "lookups": "present and absent names a second",
    "commit": "the latency of one store against one raw write",
    "reads": "buffered reads of a large file, cold and warm",
    "layout": "what was written in parallel, read back",
    "weights": "hcfs's reader of weights and other loaders, and first tokens",
    "mount": "mounting, unmounting, mounting after a kill",
}
"""Each is a module of MEASUREMENTS with arguments(parser), run(args), which returns what --json prints, and
text(result)."""


EPILOG = "Without a command it is l2. See also `tools/lab scale`: one store with ever more objects."


def completed(given: Sequence[str]) -> list[str]:
    """The command line, with the command that is meant when none is given."""
    named = given and (not given[0].startswith("-") or given[0] in ("-h", "--help"))
    return [*given] if named else ["l2", *given]


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="tools/lab bench", description=__doc__, epilog=EPILOG)
    commands = found.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, meaning in COMMANDS.items():
        module = importlib.import_module(f"{MEASUREMENTS}.{name}")
        command = commands.add_parser(name, help=meaning, description=module.__doc__)
        command.add_argument("--json", action="store_true", help="print the result as JSON")
        module.arguments(command)
    return found


def main(words: Sequence[str]) -> None:
    args = parser().parse_args(completed(words))
    args.words = [*words]
    module = importlib.import_module(f"{MEASUREMENTS}.{args.command}")
    try:
        result = module.run(args)
    except BenchError as error:
        sys.exit(f"tools/lab bench {args.command}: {error}")
    print(json.dumps(result, indent=2) if args.json else module.text(result))
