"""Space on a mount: random operations while a sampler looks on, filling and draining, fragmentation over time.

`tools/space operations|cycles|fragmentation --help` says how to call each. Exit code 0: nothing was found. 1: a
finding, with the seed that decides the operations.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import space_cycles
import space_fragmentation
import space_operations
from harness import ended
from harness.places import Place
from space_looks import Finding

CAMPAIGNS = {
    "operations": (space_operations, "random operations of several processes, while df and status are compared"),
    "cycles": (space_cycles, "fill the device to the last block and drain it, again and again"),
    "fragmentation": (space_fragmentation, "objects of mixed sizes on a full device: extents and free runs over time"),
}


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/space", description=__doc__.partition("\n\n")[0])
    commands = parser.add_subparsers(dest="campaign", required=True)
    for name, (campaign, meaning) in CAMPAIGNS.items():
        command = commands.add_parser(name, help=meaning, description=campaign.__doc__)
        command.add_argument("--seed", default=None, help="what decides the operations; random without it")
        command.add_argument("--size", default=campaign.SIZE, help=f"of the image (default: {campaign.SIZE})")
        command.add_argument("--directory", type=Path, default=None, help="where to work (default: a temporary one)")
        campaign.add_arguments(command)
    options = parser.parse_args(words)
    options.seed = secrets.token_hex(4) if options.seed is None else options.seed
    return options


def main() -> int:
    """Run one campaign."""
    options = parse()
    print(f"seed {options.seed}", flush=True)
    with Place.make("hcfs-space-", options.directory) as directory:
        try:
            CAMPAIGNS[options.campaign][0].run(options, directory)
        except Finding as finding:
            print(f"FINDING: {finding}\nrepeat with: tools/space {options.campaign} --seed {options.seed}", flush=True)
            return 1
    print("nothing found")
    return 0


if __name__ == "__main__":
    ended.run("tools/space", main)
