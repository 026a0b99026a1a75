"""Space on a mount: random operations while a sampler looks on, filling and draining, fragmentation over time.

`tools/lab space operations|cycles|fragmentation --help` says how to call each. Exit code 0: nothing was found. 1: a
finding, with the seed that decides the operations.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence
from pathlib import Path

from lab.harness.places import Place
from lab.space import cycles, fragmentation, operations
from lab.space.looks import Finding

CAMPAIGNS = {
    "operations": (operations, "random operations of several processes, while df and status are compared"),
    "cycles": (cycles, "fill the device to the last block and drain it, again and again"),
    "fragmentation": (fragmentation, "objects of mixed sizes on a full device: extents and free runs over time"),
}


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/lab space", description=__doc__.partition("\n\n")[0])
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


def main(words: Sequence[str]) -> int:
    """Run one campaign."""
    options = parse(words)
    print(f"seed {options.seed}", flush=True)
    with Place.make("hcfs-space-", options.directory) as directory:
        try:
            CAMPAIGNS[options.campaign][0].run(options, directory)
        except Finding as finding:
            print(
                f"FINDING: {finding}\nrepeat with: tools/lab space {options.campaign} --seed {options.seed}", flush=True
            )
            return 1
    print("nothing found")
    return 0
