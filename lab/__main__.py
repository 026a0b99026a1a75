"""`tools/lab NAME [WORDS]`: one launcher for every benchmark, campaign and comparison."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lab.harness import ended


@dataclass(frozen=True)
class Command:
    """A row of the table: `main(words)` of the module returns the exit code."""

    subject: str
    module: str
    meaning: str


MEASURES, MOUNTS, STORES = "Measurements", "Campaigns on real mounts", "Campaigns on stores"
COMMANDS = {
    "bench": Command(MEASURES, "lab.bench.main", "hcfs beside what it competes with, as ratios within one run"),
    "scale": Command(MEASURES, "lab.scale.main", "one store with ever more objects: what of it stays the same"),
    "eviction-policies": Command(MEASURES, "lab.eviction.main", "hit ratio and cost of policies on traces of serving"),
    "memory": Command(MEASURES, "lab.memory.main", "whether the daemon's memory stays within its budget"),
    "streaming": Command(MEASURES, "lab.origins.streaming", "when the first byte of a slow origin's file is there"),
    "redraw": Command(MEASURES, "lab.redraw", "the picture of a result of bench or scale, once more"),
    "torture": Command(MOUNTS, "lab.torture.main", "many processes, kills at random, remounts with random options"),
    "exerciser": Command(MOUNTS, "lab.exerciser.main", "random calls on one file, compared with a model"),
    "space": Command(MOUNTS, "lab.space.main", "whether space is told truthfully, comes back, and stays"),
    "openers": Command(MOUNTS, "lab.origins.openers", "many openers of one file of an origin: one fetch for all"),
    "uploads": Command(MOUNTS, "lab.origins.uploads", "writers to an origin that fails: nothing acknowledged is lost"),
    "mounted-damage": Command(
        MOUNTS, "lab.reliability.campaigns.mounted_damage", "damage many places of a medium, mount and read it"
    ),
    "crash-states": Command(
        STORES, "lab.reliability.campaigns.crash_states", "recover every state that a crash can leave"
    ),
    "faults": Command(STORES, "lab.reliability.campaigns.faults", "fail the 1st, 2nd, 3rd ... read, write and flush"),
    "damage": Command(STORES, "lab.reliability.campaigns.damage", "flip bits and misplace blocks in every place"),
    "fuzz-parsers": Command(
        STORES, "lab.reliability.campaigns.fuzz_parsers", "feed every parser of what is on a device"
    ),
    "guided-fuzzing": Command(
        STORES, "lab.reliability.campaigns.guided_fuzzing", "let atheris look for inputs that reach new code"
    ),
}
"""By name. A new command is a module with `main(words)` and a row here."""


def listing() -> str:
    """What `tools/lab --help` prints."""
    lines = ["usage: tools/lab NAME [WORDS]", "", "`tools/lab NAME --help` tells what a command takes."]
    for subject in dict.fromkeys(command.subject for command in COMMANDS.values()):
        lines += ["", f"{subject}:"]
        lines += [f"  {name:18} {row.meaning}" for name, row in COMMANDS.items() if row.subject == subject]
    return "\n".join(lines)


def start(name: str, words: Sequence[str]) -> int | None:
    """Import one command and run it; a library that isn't there is named, with the remedy."""
    try:
        code: int | None = importlib.import_module(COMMANDS[name].module).main(words)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("lab", "hcfs", ""):
            raise
        sys.exit(f"tools/lab {name}: the package {missing} isn't installed: run tools/setup --with-tests")
    return code


def main(words: Sequence[str]) -> None:
    """Without a word, or with --help, the list; else the command, which ends the process."""
    if not words or words[0] in ("-h", "--help"):
        print(listing())
        return
    name, *rest = words
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        print(f"tools/lab: there is no {name!r}{meant}; tools/lab --help lists what there is", file=sys.stderr)
        sys.exit(2)
    ended.run(f"tools/lab {name}", partial(start, name, rest))


if __name__ == "__main__":
    main(sys.argv[1:])
